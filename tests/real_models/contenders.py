"""Who runs a model: this library, and TVM as shipped. Facts of the outcomes stand in the table's rows."""

import time
from collections.abc import Callable
from typing import Any

from tests.oracles.outcome import Outcome, attempt
from tests.oracles.pool import Service
from tests.oracles.reference import compiled, stock_outputs

from .models import MODELS, Inputs, RealModel, Unavailable
from .reference import judge, onnxruntime_of, verdict_on

_SEED = 0


def ours(model: RealModel) -> Outcome:
    """`tvm_ext.compile`: error, seconds, kernels; and how far onnxruntime's optimizations move its own outputs.

    Raises:
        Refused: the model was refused; the message is the reason.
    """
    import onnx
    import tvm  # noqa: F401  (the compile is timed, not what is imported)

    import tvm_ext  # noqa: F401

    data, inputs = model.file().read_bytes(), model.inputs(model.sizes[0], _SEED)
    nodes = len(onnx.ModelProto.FromString(data).graph.node)
    start = time.perf_counter()
    program = compiled(data, shapes={name: x.shape for name, x in inputs.items()})
    seconds = time.perf_counter() - start
    kernels = [kernel["recipe"] for kernel in program.report["kernels"]]
    plain = onnxruntime_of(data, inputs)
    theirs = judge(onnxruntime_of(data, inputs, optimized=True), plain, roughly=True)
    more = {
        "onnxruntime's own": theirs.error, "nodes": nodes, "compile seconds": round(seconds, 2),
        "kernels": len(kernels), "generic": kernels.count("generic"),
    }  # fmt: skip
    return _judged(model, data, inputs, program.run(inputs), more)


def stock(model: RealModel) -> Outcome:
    """`from_onnx` with the shapes of the inputs, `tvm.compile`, and one run.

    Raises:
        Refused: `from_onnx` raised; the message is the reason.
    """
    import onnx

    data, inputs = model.file().read_bytes(), model.inputs(model.sizes[0], _SEED)
    proto = onnx.ModelProto.FromString(data)
    feeds = {value.name: inputs[value.name] for value in proto.graph.input if value.name in inputs}
    results = stock_outputs(proto, feeds, shape_dict={name: list(x.shape) for name, x in inputs.items()})
    names = [output.name for output in proto.graph.output]
    return _judged(model, data, inputs, dict(zip(names, results, strict=True)), {})


def _judged(model: RealModel, data: bytes, inputs: Inputs, outputs: Inputs, more: dict[str, Any]) -> Outcome:
    verdict = verdict_on(model, data, inputs, outputs)
    note = {"note": verdict.note} if verdict.note else {}
    return Outcome("wrong" if verdict.reason else "pass", verdict.reason, {"error": verdict.error, **more, **note})


CONTENDERS: dict[str, Callable[[RealModel], Outcome]] = {"ours": ours, "stock": stock}


def answer(task: tuple[str, str]) -> Outcome:
    """The outcome of a model in a contender, by the names of both; "not tested" where the model cannot be had."""
    contender, name = task
    try:
        MODELS[name].file()
    except Unavailable as error:
        return Outcome("not tested", f"download failed: {error}")
    return attempt(lambda: CONTENDERS[contender](MODELS[name]))


SERVICE = Service(answer, seconds=600.0)
