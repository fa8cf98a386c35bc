"""The driver: the ONNX nodes of a region, run by onnxruntime. All that a deployment imports.

program = number of threads (4 bytes, little endian), ONNX model of the region (weights inside, all shapes static)
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm_ext.core.errors import ArtifactError, ProgramError
from tvm_ext.runtime.drivers import register_driver

NAME = "onnxruntime"
_HEAD = 4
_SPINNING = "session.intra_op.allow_spinning"
#: An ONNX model: y = Identity(x).
_SMALLEST = (
    b'\x08\x08:9\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x10\n\x01x\x12\x0b\n\t\x08\x01\x12\x05\n\x03'
    b"\x12\x01Nb\x10\n\x01y\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12\x01NB\x04\n\x00\x10\r"
)


def program_of(model: bytes, threads: int) -> bytes:
    """The program that runs a serialized ONNX model with so many threads."""
    return threads.to_bytes(_HEAD, "little") + model


def model_of(program: bytes) -> bytes:
    """The serialized ONNX model of a program."""
    return program[_HEAD:]


def driver(program: bytes) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """A function of (inputs, outputs) that several threads may call at once; it writes the outputs in place.

    Args:
        program: what :func:`program_of` gives.

    Raises:
        ArtifactError: onnxruntime is not installed.
        ProgramError: it does not take the model.
    """
    session = session_of(model_of(program), int.from_bytes(program[:_HEAD], "little"))
    names = [value.name for value in session.get_inputs()]

    def runner(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        results = session.run(None, dict(zip(names, inputs, strict=False)))  # without inputs one that means nothing
        for value, result, output in zip(session.get_outputs(), results, outputs, strict=True):
            if result.shape != output.shape or result.dtype != output.dtype:
                computed, wanted = (f"{a.dtype}{list(a.shape)}" for a in (result, output))
                raise ProgramError(f"value {value.name!r} is {computed}; the model says that it is {wanted}")
            np.copyto(output, result)

    return runner


def session_of(model: bytes | str, threads: int, options: Any = None) -> Any:
    """A session that keeps the cores free between its runs: its threads sleep at once, and do not spin.

    Args:
        model: serialized, or the path of its file.
        threads: of the session, unless `options` say how many.
        options: `onnxruntime.SessionOptions` of the caller's, which stay as they are. They hold but for profiling, and
            for spinning if they do not name it.

    Raises:
        ArtifactError: onnxruntime is not installed.
        ProgramError: it does not take the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        wrong = f"onnxruntime, which runs part of this model, cannot be imported: {error}"
        raise ArtifactError(wrong, fix="pip install onnxruntime") from error
    try:
        own = _own_options(onnxruntime, threads) if options is None else _copied(onnxruntime, options, threads)
        return onnxruntime.InferenceSession(model, own, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own, for each of its error codes
        raise ProgramError(f"onnxruntime does not take it: {' '.join(str(error).split())[:500]}") from error


def _own_options(onnxruntime: Any, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry(_SPINNING, "0")
    options.log_severity_level = 4  # what is fatal; the rest is raised
    return options


def _copied(onnxruntime: Any, options: Any, threads: int) -> Any:
    """A copy of the caller's options: those of a session that was made with them."""
    profiling, options.enable_profiling = options.enable_profiling, False
    try:
        copy = onnxruntime.InferenceSession(
            _SMALLEST, options, providers=["CPUExecutionProvider"]
        ).get_session_options()
    finally:
        options.enable_profiling = profiling
    copy.intra_op_num_threads = copy.intra_op_num_threads or threads
    try:
        copy.get_session_config_entry(_SPINNING)
    except Exception:  # it is not among them
        copy.add_session_config_entry(_SPINNING, "0")
    return copy


register_driver(NAME, driver)
