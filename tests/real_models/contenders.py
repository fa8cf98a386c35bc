"""Who runs a model: this library, and TVM as shipped. Each answers with a row of the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tvm_ext

from ..onnx_backend.contenders import Refused
from .float64 import float64_outputs
from .models import Inputs, RealModel
from .reference import judge, onnxruntime_outputs

Row = dict[str, Any]
_SEED = 0


def ours(model: RealModel) -> Row:
    """`tvm_ext.compile`: error, seconds, kernels; and how far onnxruntime's optimizations move its own outputs.

    Raises:
        Refused: the model was refused; the message is the reason.
    """
    import onnx
    import tvm  # noqa: F401  (the compile is timed, not what is imported)

    data, inputs = model.file().read_bytes(), model.inputs(model.sizes[0], _SEED)
    nodes = len(onnx.ModelProto.FromString(data).graph.node)
    start = time.perf_counter()
    try:
        compiled = tvm_ext.compile(data, shapes={name: x.shape for name, x in inputs.items()}, cache=False)
    except (tvm_ext.errors.ModelError, tvm_ext.errors.UnsupportedError) as error:
        raise Refused(error.message) from error
    seconds = time.perf_counter() - start
    kernels = [kernel["recipe"] for kernel in compiled.report["kernels"]]
    plain = onnxruntime_outputs(data, inputs, optimized=False)
    found = _judged(model, data, inputs, compiled.run(inputs))
    theirs = judge(onnxruntime_outputs(data, inputs, optimized=True), plain, roughly=True)
    return {
        **found, "onnxruntime's own": theirs.error, "nodes": nodes, "compile seconds": round(seconds, 2),
        "kernels": len(kernels), "generic": kernels.count("generic"),
    }  # fmt: skip


def stock(model: RealModel) -> Row:
    """`from_onnx` with the shapes of the inputs, `tvm.compile`, and one run.

    Raises:
        Refused: `from_onnx` raised; the message is the reason.
    """
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    data, inputs = model.file().read_bytes(), model.inputs(model.sizes[0], _SEED)
    proto = onnx.ModelProto.FromString(data)
    try:
        mod = from_onnx(proto, shape_dict={name: list(x.shape) for name, x in inputs.items()})
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    machine = relax.VirtualMachine(tvm.compile(mod, tvm.target.Target("llvm")), tvm.cpu())
    order = [value.name for value in proto.graph.input if value.name in inputs]
    found = machine["main"](*(tvm.runtime.tensor(inputs[name]) for name in order))
    arrays = [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]
    names = [output.name for output in proto.graph.output]
    return _judged(model, data, inputs, dict(zip(names, arrays, strict=True)))


def _judged(model: RealModel, data: bytes, inputs: Inputs, found: Inputs) -> Row:
    wanted = onnxruntime_outputs(data, inputs, optimized=False)
    if model.requantizes:
        verdict = judge(found, wanted, roughly=True)
    else:
        verdict = judge(found, wanted, lambda: float64_outputs(data, inputs))
    row: Row = {"outcome": f"wrong: {verdict.reason}" if verdict.reason else "pass", "error": verdict.error}
    return {**row, "note": verdict.note} if verdict.note else row


CONTENDERS: dict[str, Callable[[RealModel], Row]] = {"ours": ours, "stock": stock}
