"""The driver: the ONNX nodes of a region, run by onnxruntime. All that a deployment imports.

program = number of threads (4 bytes, little endian), ONNX model of the region (weights inside, all shapes static)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm_ext.core.errors import ArtifactError, ProgramError
from tvm_ext.runtime.drivers import register_driver

NAME = "onnxruntime"
_HEAD = 4


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


def session_of(model: bytes, threads: int) -> Any:
    """A session that keeps the cores free between its runs: its threads sleep at once, and do not spin.

    Raises:
        ArtifactError: onnxruntime is not installed.
        ProgramError: it does not take the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        wrong = f"onnxruntime, which runs part of this model, cannot be imported: {error}"
        raise ArtifactError(wrong, fix="pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # what is fatal; the rest is raised
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own, for each of its error codes
        raise ProgramError(f"onnxruntime does not take it: {' '.join(str(error).split())[:500]}") from error


register_driver(NAME, driver)
