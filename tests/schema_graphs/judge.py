"""One case through this library, then onnxruntime, float64 and ONNX's evaluator: one that agrees is enough."""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.onnx_backend import contenders
from tests.onnx_backend.cases import Case
from tests.oracles.compare import Allowed, close, difference
from tests.oracles.float64 import casts, float64_outputs
from tests.oracles.outcome import Outcome, Refused
from tests.oracles.pool import Service
from tvm_ext.core.errors import ModelError, UnsupportedError
from tvm_ext.frontend.reading.narrow import NARROW
from tvm_ext.verification.magnitude import Chain
from tvm_ext.verification.tolerance import Tolerance

from .conditions import inverse, moves
from .graphs import PROBE, schemas, seeded

#: Seed, operator ("" for one that the seed draws), and whether onnxruntime is asked.
Task = tuple[int, str, bool]

#: Operators of which ONNX's evaluator does not do all that ONNX defines: attributes, or where it rounds.
_BEYOND_ONNX = frozenset(
    [
        "GRU",
        "Gemm",
        "GridSample",
        "Imputer",
        "LRN",
        "LSTM",
        "LinearRegressor",
        "LpNormalization",
        "LpPool",
        "OneHot",
        "QLinearConv",
        "QLinearMatMul",
        "RNN",
        "Scaler",
        "TopK",
    ]
)
#: Operators that work along rows of two dimensions before this opset, and along an axis from it on.
_ALONG_ROWS, _ALONG_AXIS = ("Hardmax", "LogSoftmax", "Softmax"), 13
#: Operators of onnxruntime's that leave a product over nothing as it lies in memory: two runs give two answers.
_PRODUCTS = (
    "QLinearConv",
    "microsoft.DynamicQuantizeLSTM",
    "microsoft.DynamicQuantizeMatMul",
    "microsoft.MatMulIntegerToFloat",
    "microsoft.QAttention",
    "microsoft.QGemm",
    "microsoft.QLinearConv",
)
#: Operators that weigh values by probabilities: where one below the normal numbers, which is 0 here (docs/limits.md),
#: meets an infinite value, others have an infinity for NaN.
_ATTENTIONS = ("Attention", "microsoft.Attention", "microsoft.MultiHeadAttention")
#: A product of this and a weight may overflow.
_VAST = 1e30
#: Of a value, beside what its sums may be off.
_RTOL = {"float32": 1e-5, "float64": 1e-12}


def outcome(case: Case, onnxruntime: bool = True) -> Outcome:
    """What became of a case.

    "right", "unchecked" (nobody else runs it), "refused" (others run it), "invalid" (nobody does), "nameless" (a
    refusal that does not name the node), "raw" (one by an exception that is not ours), "wrong", or "foreign": an
    exception that is no refusal. A pool adds "crash" and "hang".

    Args:
        onnxruntime: whether it may be asked.
    """
    try:
        outputs = contenders.ours(case)
    except (Refused, ModelError, UnsupportedError) as error:
        return _refusal(case, str(error), onnxruntime)
    except Exception as error:
        return _outcome("foreign", f"{type(error).__name__}: {error}")
    compared = _compared(case, outputs, onnxruntime)
    if compared.kind == "wrong" and _spreads(case):
        return _compared(case, contenders.ours(case, accuracy="exact"), onnxruntime)
    return compared


def _compared(case: Case, outputs: Sequence[Any], onnxruntime: bool) -> Outcome:
    reasons = []
    for name, answer in _others(dataclasses.replace(case, outputs=tuple(outputs)), onnxruntime):
        reason = _different(name, case, outputs, answer)
        if not reason:
            return Outcome("right")
        reasons.append(f"{name}: {reason}")
    return _outcome("wrong", "; ".join(reasons)) if reasons else Outcome("unchecked")


def _spreads(case: Case) -> bool:
    """Whether a convolution reads what may be infinite, which merged groups and Winograd's tiles spread."""
    graph = onnx.ModelProto.FromString(case.model).graph
    floats = [x for x in (*case.inputs, *map(numpy_helper.to_array, graph.initializer)) if x.dtype.kind == "f"]
    endless = any(not (np.abs(x) < _VAST).all() for x in floats)
    return endless and any("Conv" in node.op_type for node in graph.node)


def _refusal(case: Case, text: str, onnxruntime: bool) -> Outcome:
    others = [name for name, _ in _others(case, onnxruntime)]
    named = "refused" if repr(PROBE) in text or "'x" in text else "nameless"
    raw = "onnxruntime" in others and "cannot be converted: " in text
    kind = "invalid" if not others or not _is_valid(case) else "raw" if raw else named
    return _outcome(kind, text)


def _is_valid(case: Case) -> bool:
    """Whether all that ONNX asks of a model is stated: drafts lack the types of outputs that nobody can infer."""
    try:
        onnx.checker.check_model(case.model)
    except onnx.checker.ValidationError:
        return False
    return True


def _outcome(kind: str, text: str) -> Outcome:
    return Outcome(kind, " ".join(text.split())[:400].encode("ascii", "replace").decode())


def _others(case: Case, onnxruntime: bool) -> Iterator[tuple[str, list[Any]]]:
    """Whoever else runs the case, with the outputs."""
    ways: dict[str, Callable[[Case], list[Any]]] = {"onnxruntime": _onnxruntime} if onnxruntime else {}
    if case.operator not in _BEYOND_ONNX:
        ways |= {"float64": _float64, "onnx": _reference}
    if case.operator in _PRODUCTS and not all(x.size for x in case.inputs):
        ways.pop("onnxruntime", None)  # which does not write a product of nothing
    if case.operator in ("Cast", "CastLike") and any(x.dtype.name in NARROW for x in case.outputs):
        ways.pop("onnxruntime", None)  # which rounds to integers of 2 and 4 bits, where ONNX truncates
    if case.operator == "ReduceLogSumExp" and case.inputs and case.inputs[0].dtype.kind in "iu":
        ways.pop("onnxruntime", None)  # which cuts each exponential to an integer
    if case.operator == "TopK" and not _flag(case, "sorted"):
        ways.pop("onnxruntime", None)  # of several orders, all of which are right, it has another one
    if case.operator == "LRN" and any(not (np.abs(x) < _VAST**0.5).all() for x in case.inputs if x.dtype.kind == "f"):
        ways.pop("onnxruntime", None)  # whose sums move on by a difference: an infinity leaves NaN behind
    if case.operator == "AveragePool" and any(np.isnan(x).any() for x in case.inputs if x.dtype.kind == "f"):
        ways = {name: way for name, way in ways.items() if name == "onnxruntime"}  # ONNX's evaluator passes NaN over
    for name, way in ways.items():
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                outputs = way(case)
        except Exception:
            continue
        if _as_inferred(case, outputs):
            yield name, outputs


def _flag(case: Case, name: str) -> bool:
    """Whether an attribute of the probe is left out or not 0."""
    nodes = onnx.ModelProto.FromString(case.model).graph.node
    return all(a.i for node in nodes if node.name == PROBE for a in node.attribute if a.name == name)


def _as_inferred(case: Case, outputs: Sequence[Any]) -> bool:
    """Whether outputs have the shapes that ONNX infers, as poolings of others do not always."""
    for value, output in zip(onnx.ModelProto.FromString(case.model).graph.output, outputs, strict=True):
        dims = value.type.tensor_type.shape.dim
        known = value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims)
        if known and [d.dim_value for d in dims] != list(output.shape):
            return False
    return True


def _onnxruntime(case: Case) -> list[Any]:
    return contenders.onnxruntime(case, optimized=False)


def _float64(case: Case) -> list[Any]:
    return list(float64_outputs(case.model, contenders.feeds_of(case), [inverse()]).values())


def _reference(case: Case) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    model = onnx.ModelProto.FromString(case.model)
    if case.operator in _ALONG_ROWS and model.opset_import[0].version < _ALONG_AXIS:
        _flatten_rows(model)
    return list(ReferenceEvaluator(model, new_ops=casts()).run(None, contenders.feeds_of(case)))


def _flatten_rows(model: onnx.ModelProto) -> None:
    """Write out that the probe takes all dimensions from its axis on for one; ONNX's evaluator does not know that."""
    graph = model.graph
    at = next(number for number, node in enumerate(graph.node) if node.name == PROBE)
    probe, axis = graph.node[at], 1
    for attribute in probe.attribute:
        axis = attribute.i if attribute.name == "axis" else axis
    (x,), (y,) = probe.input, probe.output
    parts = [
        helper.make_node("Shape", [x], ["rows/shape"]),
        helper.make_node("Flatten", [x], ["rows"], axis=axis),
        helper.make_node(probe.op_type, ["rows"], ["rows/result"], PROBE, axis=1),
        helper.make_node("Reshape", ["rows/result", "rows/shape"], [y]),
    ]
    nodes = [*graph.node[:at], *parts, *graph.node[at + 1 :]]
    del graph.node[:]
    graph.node.extend(nodes)


def _before(case: Case) -> dict[str, np.ndarray]:
    """Values of the nodes before the probe, by name: what this reads decides how its roundings grow."""
    from onnx.reference import ReferenceEvaluator

    model = onnx.ModelProto.FromString(case.model)
    nodes = list(itertools.takewhile(lambda node: node.name != PROBE, model.graph.node))
    names = [name for node in nodes for name in node.output]
    graph = helper.make_graph(
        nodes, "before", model.graph.input, [onnx.ValueInfoProto(name=name) for name in names], model.graph.initializer
    )
    if not names:
        return {}
    with np.errstate(all="ignore"):
        before = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import, ir_version=10))
        return dict(zip(names, before.run(None, contenders.feeds_of(case)), strict=True))


def _behind(case: Case, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values behind the probe by ONNX's evaluator, of what the probe made here: a step, as of Equal, makes much of a
    rounding, and onnxruntime does not round float16 between two nodes. None where what the probe made is no output."""
    from onnx.reference import ReferenceEvaluator

    model = onnx.ModelProto.FromString(case.model)
    _, *nodes = itertools.dropwhile(lambda node: node.name != PROBE, model.graph.node)
    names = [name for node in nodes for name in node.output]
    feeds = {name: arrays[name] for node in nodes for name in node.input if name in arrays and name not in names}
    if not names or any(name not in {*feeds, *names, ""} for node in nodes for name in node.input):
        return {}
    graph = helper.make_graph(
        nodes, "behind", *([onnx.ValueInfoProto(name=name) for name in side] for side in (feeds, names))
    )
    with np.errstate(all="ignore"):
        behind = helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)
        return dict(zip(names, ReferenceEvaluator(behind).run(None, feeds), strict=True))


def _narrowest(graph: onnx.GraphProto, dtypes: Iterable[str]) -> str:
    """The narrowest float of these and of what is cast to; "" if no value is cast, nor by onnxruntime's operators."""
    casts = [a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"]
    mixed = casts or any(node.domain == "com.microsoft" for node in graph.node)
    names = {*dtypes, *(helper.tensor_dtype_to_np_dtype(i).name for i in casts)} if mixed else set()
    return next((name for name in ("bfloat16", "float16", "float32", "float64") if name in names), "")


def _precision(operator: str, dtype: str) -> str:
    """The dtype in whose precision an operator's outputs are exact: ONNX's definitions have constants of float32."""
    defined = any(s.has_function or s.has_context_dependent_function for s in schemas()[operator])
    return "float32" if dtype == "float64" and (defined or operator.startswith("microsoft.")) else dtype


def _different(name: str, case: Case, outputs: Sequence[Any], wanted: Sequence[Any]) -> str:
    """What of the outputs differs first by more than roundings explain; "" if nothing does."""
    graph = onnx.ModelProto.FromString(case.model).graph
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer} | contenders.feeds_of(case)
    arrays |= _before(case) | dict(zip([o.name for o in graph.output], outputs, strict=True))
    behind = _behind(case, arrays)
    chain = Chain(graph.node, arrays)
    narrow = _narrowest(graph, [x.dtype.name for x in (*arrays.values(), *outputs)])
    slack = (
        moves(case.model, contenders.feeds_of(case)) if case.operator == "microsoft.Inverse" else [0.0] * len(outputs)
    )
    for i, (mine, theirs) in enumerate(zip(outputs, map(np.asarray, wanted), strict=True)):
        free = "iu" if theirs.dtype.kind in "iu" else "fV"
        if name != "onnxruntime" and mine.dtype.kind in free:  # ONNX's evaluator is so with widths
            theirs = theirs.astype(mine.dtype)
        dtype = mine.dtype.name
        dtype = _precision(case.operator, narrow if narrow and mine.dtype.kind == "f" else dtype)
        allowed = Tolerance(
            dtype, chain.length() or 1, chain.magnitude(graph.output[i].name), operators=2 + len(graph.node)
        )
        rtol = _RTOL.get(dtype, 0.0)
        if dtype == "float8_e8m0fnu" and mine.shape == theirs.shape:  # of a negative number ONNX says nothing
            theirs = np.where(np.isnan(mine.astype(np.float32)), mine, theirs)
        by_tables = case.operator.startswith("microsoft.QLinear") and mine.dtype.kind in "iu"
        if by_tables and mine.shape == theirs.shape:
            theirs = np.where(np.abs(mine.astype(int) - theirs.astype(int)) == 1, mine, theirs)
        if case.operator == "MaxPool" and graph.output[i].name == "y1" and mine.shape == theirs.shape:
            theirs = np.where(_of_nothing(arrays.get("y0"), theirs), mine, theirs)
        if mine.shape == theirs.shape:
            theirs = np.where(np.isinf(slack[i]), mine, theirs)
        if name == "onnxruntime" and mine.shape == theirs.shape:
            theirs = _as_others(case.operator, {n.op_type for n in graph.node}, mine, theirs)
        if case.operator in _ATTENTIONS and mine.shape == theirs.shape and mine.dtype.kind == "f":
            theirs = np.where(np.isnan(mine) & np.isinf(theirs), mine, theirs)
        near = _near(rtol, allowed.absolute + 1e-36, slack[i])
        reason, _ = difference([mine], [theirs], near)
        if reason and (own := behind.get(graph.output[i].name)) is not None:
            reason, _ = difference([mine], [own], near)
        if reason:
            return f"{i}: {reason}"
    return ""


def _near(rtol: float, atol: float, slack: Any) -> Allowed:
    """As `close`, and for each element so much more, which integers and booleans may differ by, too."""
    near = close(rtol, atol)
    return lambda number, reference: near(number, reference) + slack


def _as_others(operator: str, nodes: set[str], mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """onnxruntime's outputs but where it saturates sums of int32, passes over NaN in a maximum, divides by 0 in Pow."""
    if operator == "Pow" and mine.dtype.kind == "i":  # a power below 0 of the integer 0
        return np.where((theirs == np.iinfo(mine.dtype).min) & (mine == 0), mine, theirs)
    if mine.dtype == np.int32 and "ReduceSum" in nodes:
        ends = np.iinfo(np.int32)
        return np.where((theirs == ends.min) | (theirs == ends.max), mine, theirs)
    if operator.startswith("microsoft.") and mine.dtype.kind == "f" and "ReduceMax" in nodes:
        return np.where(np.isnan(mine), mine, theirs)
    return theirs


def _of_nothing(largest: np.ndarray | None, places: np.ndarray) -> np.ndarray:
    """Where a window may hold nothing but padding: of its place onnxruntime says anything, below 0 too."""
    if largest is None:
        return places < 0
    lowest = np.iinfo(largest.dtype).min if largest.dtype.kind in "iu" else np.finfo(largest.dtype).min
    return (largest <= lowest) | (places < 0)


def answer(task: Task) -> Outcome:
    """The outcome of a case; a fact is its operator."""
    seed, operator, onnxruntime = task
    case = seeded(seed, operator)
    return outcome(case, onnxruntime)._replace(facts={"operator": case.operator})


#: A graph may take twenty seconds.
SERVICE = Service(answer, seconds=20.0)
