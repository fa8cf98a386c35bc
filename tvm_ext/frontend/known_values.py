"""Values known at import, such as arithmetic on bound shapes, computed by ONNX's own reference evaluator.

    s = Shape(x); n = Gather(s, 0); t = Concat(Unsqueeze(n), -1); y = Reshape(x, t)   ->   y = Reshape(x, [1, -1])

Converters then see plain constants, whatever way an exporter found to write a shape. Operands whose values decide a
shape must be among them: a compiled program has fixed shapes.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from tvm import relax, tirx
from tvm.ir import GenericConst

from ..core.graph.relax_graph import dtype_of, shape_of
from ..ops.conversion import converted
from ..ops.table import of
from .checks.refusal import Refusal
from .reading.walk import attribute

Shared = dict[Hashable, Any] | None
"""What imports of one model at several sizes have in common; None of a single one."""
#: Elements of an operand or result; what is larger is no arithmetic on shapes and is left to the passes.
LARGEST = 1 << 16
#: The version from which on the axes of Squeeze and Unsqueeze are an input.
_AXES_ARE_INPUT = 13
#: Attributes of a Constant that is numbers.
_NUMERIC = ("value", "value_float", "value_floats", "value_int", "value_ints")


def known_outputs(
    node: onnx.NodeProto, inputs: Sequence[Any], opset: int, shared: Shared = None
) -> list[np.ndarray] | None:
    """The outputs of a node whose operands are known.

    Args:
        inputs: Relax expression of each input; None for one that is left out.
        shared: see :func:`evaluated`.

    Returns:
        One array an output; None if an operand is not known, an operand or the result is large, or the operator is
        none that shapes are computed with. Quantized constants are among those: they stay as they are.
    """
    if node.op_type == "Constant":
        numeric = all(a.name in _NUMERIC for a in node.attribute)
        return evaluated(node, [], opset, shared) if numeric else None
    values = _operands(node, inputs)
    return None if values is None else computed(node, values, opset, shared)


#: Operators that repeat positions of one axis along others.
_REPEATING = ("Expand", "Tile")


class Positions:
    """What a graph computes of a Range.

    Where floats of it are repeated along another axis, that stays an operator, which a pass folds: of any size,
    positions follow a rule, and what is computed of several axes may follow none (the centers of a detector's cells, of
    all its resolutions in a row).
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    def stay(self, node: onnx.NodeProto, arrays: Sequence[np.ndarray] | None) -> bool:
        """Whether a node that could be computed now stays an operator; its outputs are noted.

        Args:
            arrays: its outputs; None if they are not known.
        """
        if node.op_type != "Range" and self._names.isdisjoint(node.input):
            return False
        self._names.update(node.output)
        return node.op_type in _REPEATING and any(array.dtype.kind == "f" for array in arrays or ())


def computed(
    node: onnx.NodeProto, values: Sequence[np.ndarray | None], opset: int, shared: Shared = None
) -> list[np.ndarray] | None:
    """The outputs of a node for operands given as arrays; None as for :func:`known_outputs`."""
    if node.domain not in ("", "ai.onnx") or (size := _size(node, values)) is None or size > LARGEST:
        return None
    if node.op_type in ("Div", "Mod"):
        dividend, divisor = map(np.asarray, values)
        if divisor.dtype.kind in "iu" and not ((dividend >= 0).all() and (divisor > 0).all()):
            return None  # by zero the converter refuses; before onnx 1.19 its evaluator rounds quotients down
    results = evaluated(node, values, opset, shared)
    if results and node.op_type in ("Cast", "CastLike") and "int" in results[0].dtype.name:
        return [converted(np.asarray(values[0]), results[0].dtype)]  # numpy has several answers to what does not fit
    return results


def evaluated(
    node: onnx.NodeProto, values: Sequence[np.ndarray | None], opset: int, shared: Shared = None
) -> list[np.ndarray] | None:
    """The outputs of a node by ONNX's evaluator, in the version of an opset; None if it does not know the operator.

    Args:
        values: of the inputs; None for one that is left out.
        shared: outputs of nodes at other sizes of the model, of the same values; this node's are noted there.
    """
    operands = [value for value in values if value is not None]
    if shared is None or node.ByteSize() + sum(value.nbytes for value in operands) > LARGEST:
        return _evaluated(node, values, opset)
    known = [None if x is None else (x.dtype.str, x.shape, x.tobytes()) for x in values]
    key = ("evaluated", opset, node.SerializeToString(), tuple(known))
    if key not in shared:
        shared[key] = _evaluated(node, values, opset)
    outputs: list[np.ndarray] | None = shared[key]
    return outputs


def _evaluated(node: onnx.NodeProto, values: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray] | None:
    feeds = {name: value for name, value in zip(node.input, values, strict=True) if name}
    if node.op_type in ("Squeeze", "Unsqueeze") and opset < _AXES_ARE_INPUT:
        node, opset = _with_axes(node, feeds), _AXES_ARE_INPUT
    wanted = [name for name in node.output if name]
    ends = ([onnx.ValueInfoProto(name=name) for name in names] for names in (feeds, wanted))
    graph = onnx.helper.make_graph([node], "known", *ends)  # of a node alone the evaluator takes the newest version
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(graph, opsets={"": opset}).run(wanted, feeds)
    except Exception:  # it knows fewer versions of operators than converters do, and they say what is wrong
        return None
    return [np.asarray(r) for r in results]


def _with_axes(node: onnx.NodeProto, feeds: dict[str, Any]) -> onnx.NodeProto:
    """The node with its axes as an input, which is fed: the evaluator takes those of an attribute one by one."""
    axes = attribute(node, "axes")
    name = f"{node.input[0]}:axes"
    if axes is not None:
        feeds[name] = np.array(axes, np.int64)
    inputs = [node.input[0], *([] if axes is None else [name])]
    return onnx.helper.make_node(node.op_type, inputs, list(node.output))


def _operands(node: onnx.NodeProto, inputs: Sequence[Any]) -> list[Any] | None:
    read = _extent_of if of(node.op_type).shape_read else value_of
    values = [None if x is None else read(x) for x in inputs]
    known = all(value is not None for value, x in zip(values, inputs, strict=True) if x is not None)
    return values if values and known else None


def value_of(expr: Any) -> np.ndarray | None:
    """The value of a small constant or a static shape; None of anything else."""
    if isinstance(expr, GenericConst):
        shape = shape_of(expr)
        return expr.value.numpy() if shape is not None and math.prod(shape) <= LARGEST else None
    if isinstance(expr, relax.ShapeExpr) and all(isinstance(d, tirx.IntImm) for d in expr.values):
        return np.array([int(d) for d in expr.values], np.int64)
    return np.array(int(expr), np.int64) if isinstance(expr, tirx.IntImm) else None


def _extent_of(expr: Any) -> np.ndarray | None:
    """Something of the shape of `expr` that takes no memory; None if the shape is not static."""
    if (known := value_of(expr)) is not None:
        return known
    shape = shape_of(expr) if dtype_of(expr) else None
    return None if shape is None else np.broadcast_to(np.int8(0), shape)


def check_decided(node: onnx.NodeProto, is_known: Callable[[str], bool]) -> None:
    """Refuse a node of which an input that decides a shape is not known.

    Args:
        node: any one.
        is_known: whether the value of a name is known.

    Raises:
        Refusal: names the inputs.
    """
    inputs = of(node.op_type).shape_operands.items() if node.domain in ("", "ai.onnx") else ()
    deciding = {node.input[i]: what for i, what in inputs if i < len(node.input) and node.input[i]}
    unknown = [name for name in deciding if not is_known(name)]
    if unknown:
        listed = ", ".join(f"{name!r} ({deciding[name]})" for name in unknown)
        which = f"its input {listed} decides" if len(unknown) == 1 else f"its inputs {listed} decide"
        raise Refusal(f"{which} the shape of what it makes, and must be known when it is compiled", unknown=unknown)


# ------------------------------------------------------------ sizes, before anything is computed
def _size(node: onnx.NodeProto, values: Sequence[Any]) -> int | None:
    """Elements of the result, or more; None for an operator that is not evaluated here."""
    row = of(node.op_type)
    if row.shape_read:
        return 1
    if row.shape_arithmetic == "not larger":
        return sum(v.size for v in values if v is not None) * (len(node.input) or 1)
    if row.shape_arithmetic == "elementwise":
        return math.prod(np.broadcast_shapes(*(v.shape for v in values if v is not None)))
    size = _SIZES.get(node.op_type)
    return None if size is None else size(node, values)


def _gathered(node: onnx.NodeProto, values: Sequence[Any]) -> int:
    data, indices = values
    axis = attribute(node, "axis", 0)
    return indices.size * (data.size // max(data.shape[axis], 1)) if data.ndim else 0


def _ranged(node: onnx.NodeProto, values: Sequence[Any]) -> int:
    start, limit, delta = (float(v.reshape(())) for v in values)
    steps = (limit - start) / delta if delta else math.nan
    return math.ceil(max(steps, 0.0)) if math.isfinite(steps) else LARGEST + 1  # the converter says what is wrong


_SIZES: dict[str, Callable[[onnx.NodeProto, Sequence[Any]], int]] = {
    "ConstantOfShape": lambda node, values: math.prod(map(int, values[0])),
    "Expand": lambda node, values: math.prod(np.broadcast_shapes(values[0].shape, tuple(map(int, values[1])))),
    "Gather": _gathered,
    "MelWeightMatrix": lambda node, values: int(values[0]) * (int(values[1]) // 2 + 1),
    "Range": _ranged,
    "Tile": lambda node, values: values[0].size * math.prod(map(int, values[1])),
}
