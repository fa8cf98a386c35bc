"""Other programs on a model: onnxruntime, and TVM as shipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .outcome import Refused


def session_of(model: Any, *, optimized: bool, threads: int = 1) -> Any:
    """An `onnxruntime.InferenceSession` of bytes, a path or an `onnx.ModelProto`, read by nobody else.

    Args:
        optimized: with onnxruntime's graph optimizations, or every node as the model has it.
        threads: inside an operator.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes | str) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def onnxruntime_outputs(
    model: Any, feeds: Mapping[str, Any], *, optimized: bool = False, threads: int = 1
) -> dict[str, Any]:
    """Outputs by name; of the feeds those that the graph has as inputs are taken."""
    session = session_of(model, optimized=optimized, threads=threads)
    names, inputs = [output.name for output in session.get_outputs()], {node.name for node in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in inputs}), strict=True))


def stock_outputs(proto: Any, feeds: Mapping[str, Any], **options: Any) -> list[Any]:
    """Outputs of `from_onnx` and `tvm.compile` as shipped: arrays, lists for sequences.

    Args:
        proto: an `onnx.ModelProto`.
        feeds: in the order of its inputs.
        options: of `from_onnx`.

    Raises:
        Refused: `from_onnx` raised; the message is the reason.
    """
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    try:
        mod = from_onnx(proto, **options)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    machine = relax.VirtualMachine(tvm.compile(mod, tvm.target.Target("llvm")), tvm.cpu())
    return _arrays(machine["main"](*map(_tensor, feeds.values())))


def _tensor(value: Any) -> Any:
    import tvm

    return [_tensor(element) for element in value] if isinstance(value, list) else tvm.runtime.tensor(value)


def _arrays(result: Any) -> list[np.ndarray | list[Any]]:
    """All outputs of a virtual machine."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [part.numpy() if hasattr(part, "numpy") else _arrays(part) for part in result]


def compiled(model: Any, **options: Any) -> Any:
    """The model by `tvm_ext.compile`, never out of the cache.

    Raises:
        Refused: the model was refused; the message is the reason.
    """
    import tvm_ext

    try:
        return tvm_ext.compile(model, cache=False, **options)
    except (tvm_ext.errors.ModelError, tvm_ext.errors.UnsupportedError) as error:
        raise Refused(error.message) from error
