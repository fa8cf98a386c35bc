"""The driver: the ONNX nodes of a region, run by onnxruntime. All that a deployment imports.

program = number of threads (4 bytes, little endian), ONNX model of the region (weights inside, all shapes static)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tvm_ext.core.errors import ArtifactError, ProgramError
from tvm_ext.runtime.drivers import register_driver

NAME = "onnxruntime"
_HEAD = 4
_SPINNING = "session.intra_op.allow_spinning"


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
        options: `onnxruntime.SessionOptions` to follow, but for spinning and profiling; they stay as they are.

    Raises:
        ArtifactError: onnxruntime is not installed.
        ProgramError: it does not take the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        wrong = f"onnxruntime, which runs part of this model, cannot be imported: {error}"
        raise ArtifactError(wrong, fix="pip install onnxruntime") from error
    if options is None:
        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what is fatal; the rest is raised
    try:
        with _sleeping(options, threads):
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own, for each of its error codes
        raise ProgramError(f"onnxruntime does not take it: {' '.join(str(error).split())[:500]}") from error


@contextlib.contextmanager
def _sleeping(options: Any, threads: int) -> Iterator[None]:
    """Options of a session whose threads sleep, inside only."""
    before = options.intra_op_num_threads, options.enable_profiling
    try:
        spinning = options.get_session_config_entry(_SPINNING)
    except Exception:  # nobody set it
        spinning = "1"
    options.intra_op_num_threads, options.enable_profiling = before[0] or threads, False
    options.add_session_config_entry(_SPINNING, "0")
    try:
        yield
    finally:
        options.intra_op_num_threads, options.enable_profiling = before
        options.add_session_config_entry(_SPINNING, spinning)


register_driver(NAME, driver)
