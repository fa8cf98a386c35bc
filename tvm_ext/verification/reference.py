"""The reference: onnxruntime on the same ONNX model."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime

from ..core.errors import InputError, ModelError, UnsupportedError
from ..core.machine import available_cores
from ..frontend.reading.reader import LIMIT, read_model
from ..runtime.values import spread

#: Options of onnxruntime: no sums of products of bytes that saturate, as its own do on CPUs without VNNI; and whether
#: its threads spin behind a run, on cores that the runs to be compared want.
_EXACT, _SPIN = "session.x64quantprecision", "session.intra_op.allow_spinning"


def onnxruntime_session(model: Any, threads: int | None = None, *, optimized: bool = True) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        threads: threads inside an operator; None takes every core this process may use. Operators never run side
            by side (inter-op threads 1), as they do not here either.
        optimized: with onnxruntime's default graph optimizations, or operator by operator as the model has them.

    Raises:
        ModelError: the model cannot be read, or onnxruntime finds it invalid.
        UnsupportedError: onnxruntime has no implementation of one of its nodes.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or available_cores()
    options.inter_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3  # its warnings go to stderr and are about its own optimizer
    try:
        return _open(model, options)
    except ModelError:
        raise
    except Exception as error:
        kind = type(error).__name__
        failed = UnsupportedError if kind in ("NotImplemented", "Fail", "RuntimeException") else ModelError
        raise failed(f"onnxruntime cannot open the model ({kind}): {error}") from error


def run_reference(
    model: Any, inputs: Mapping[str, Any], threads: int | None = None, *, optimized: bool = True
) -> tuple[dict[str, Any], str]:
    """Outputs of onnxruntime by name, sequences as lists, and its version; arguments as of :func:`onnxruntime_session`.

    Raises:
        ModelError: the model cannot be read.
        InputError: the inputs do not fit it.
        UnsupportedError: onnxruntime cannot run it.
    """
    values = _run(onnxruntime_session(model, threads, optimized=optimized), inputs)
    outputs = {name: x if x is None or isinstance(x, list) else np.asarray(x) for name, x in values.items()}
    return outputs, f"onnxruntime {onnxruntime.__version__}"


def run_intermediates(
    model: Any, inputs: Mapping[str, Any], names: Iterable[str], threads: int | None = None
) -> tuple[dict[str, np.ndarray], str]:
    """Values within a model by their ONNX names, as onnxruntime computes them operator by operator; and its version.

    The values become outputs of a copy of the model, so that no optimization can remove them, and none is made.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        inputs: of the model.
        names: values of its graph that nodes make; of sequences the result has the elements, and of what else is no
            tensor nothing.

    Raises:
        ModelError, InputError: as :func:`run_reference`.
        UnsupportedError: onnxruntime cannot run it, or the copy has more than the 2 GiB that a model may have.
    """
    source = read_model(model)
    copy = type(source.proto)()
    copy.CopyFrom(source.proto)
    del copy.graph.output[:]
    for name in names:
        copy.graph.output.add().name = name
    if copy.ByteSize() > LIMIT:
        wrong = f"{source.name}: {copy.ByteSize()} bytes with the data inside, more than onnxruntime can be given"
        raise UnsupportedError(wrong, fix="compare the outputs only, without layers")
    values = _run(onnxruntime_session(copy, threads, optimized=False), inputs)
    tensors = {name: value for name, value in spread(values).items() if isinstance(value, np.ndarray)}
    return tensors, f"onnxruntime {onnxruntime.__version__}"


def _run(session: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    names = [output.name for output in session.get_outputs()]
    wanted = {node.name for node in session.get_inputs()}
    feeds = {name: value for name, value in inputs.items() if name in wanted and value is not None}
    try:
        values = session.run(names, feeds)
    except Exception as error:
        failed = InputError if type(error).__name__ in ("InvalidArgument", "ValueError") else UnsupportedError
        raise failed(f"onnxruntime cannot run the model: {error}") from error
    return dict(zip(names, values, strict=True))


def _open(model: Any, options: Any) -> Any:
    source = read_model(model)  # says more clearly than onnxruntime what is wrong with a file
    source_of = os.fspath(model) if isinstance(model, str | os.PathLike) else source.proto.SerializeToString()
    options.add_session_config_entry(_EXACT, "1")
    options.add_session_config_entry(_SPIN, "0")
    try:
        return onnxruntime.InferenceSession(source_of, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if type(error).__name__ != "NotImplemented":
            raise
    options.add_session_config_entry(_EXACT, "0")  # it makes kernels of QGemm and QLinearMatMul that there are none of
    return onnxruntime.InferenceSession(source_of, options, providers=["CPUExecutionProvider"])
