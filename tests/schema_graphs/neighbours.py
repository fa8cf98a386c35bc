"""What stands before and behind the probe: chains of operators that compute, move, compare and convert."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass
class Graph:
    """A graph under construction."""

    rng: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: list[np.ndarray] = field(default_factory=list)

    def operand(self, name: str, array: np.ndarray, constant: bool) -> None:
        array = np.asarray(array)
        if constant:
            self.weights.append(numpy_helper.from_array(array, name))
        else:
            self.inputs.append(_typed(name, array))
            self.feeds.append(array)

    def weight(self, values: Any, dtype: Any) -> str:
        """A constant of its own."""
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def node(self, op: str, inputs: Sequence[str], output: str, label: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], label, **attributes))
        return output


def _typed(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


_WIDE = ("float16", "float32", "float64", "int32", "int64", "bool")
#: Kind of dtype -> operators that compute on what is fed; the moves leave every value as it is.
_COMPUTED = {"f": ("Neg", "Abs", "Add", "Mul", "Relu", "Identity"), "i": ("Add", "Identity"), "b": ("Not",)}
_MOVES = ("Transpose", "Reshape", "Concat", "Cast")
#: Dtype that is fed -> the one that a Cast makes of it, exactly.
_EXACT = {"float16": ("float32", "float64"), "float32": ("float64",), "int32": ("int64", "float64"), "bool": ("int32",)}


def before(graph: Graph, names: list[str], moves: bool) -> None:
    """Chains before inputs that are fed: the first is computed on or moved, the others, which may be indices, moved.

    Args:
        moves: the first is moved, too.
    """
    for number, value in enumerate(list(graph.inputs)):
        array = graph.feeds[number]
        if value.name not in names or array.dtype.name not in _WIDE:
            continue
        for _ in range(graph.rng.choice((0, 0, 0, 1, 1, 2) if number == 0 else (0, 0, 0, 0, 1))):
            kinds = _MOVES if number or moves or graph.rng.random() < 0.4 else _COMPUTED[array.dtype.kind]
            _put_before(graph, names, number, graph.rng.choice(kinds))


def _put_before(graph: Graph, names: list[str], number: int, kind: str) -> None:
    """A node whose output takes the place of an input of the probe, or of the node that was put before it."""
    x, name, rng = graph.feeds[number], graph.inputs[number].name, graph.rng
    fresh = f"{name}_{len(graph.nodes)}"
    more, attributes, fed = [], {}, x
    if kind in ("Add", "Mul"):
        more = [graph.weight(1 if kind == "Add" else 2, x.dtype)]
    elif kind == "Transpose":
        if x.ndim < 2:
            return
        order = rng.sample(range(x.ndim), x.ndim)
        attributes, fed = {"perm": order}, x.transpose(np.argsort(order))
    elif kind == "Reshape":
        if not x.size:
            return
        more, fed = [graph.weight(x.shape, np.int64)], x.reshape(rng.choice([(-1,), (1, *x.shape), (*x.shape, 1)]))
    elif kind == "Concat":
        if not x.ndim:
            return
        axis = rng.randrange(x.ndim)
        at = rng.randint(0, x.shape[axis])
        more, fed = [graph.weight(np.split(x, [at], axis)[1], x.dtype)], np.split(x, [at], axis)[0]
        attributes = {"axis": axis}
    elif kind == "Cast":
        narrow = [n for n, wide in _EXACT.items() if x.dtype.name in wide]
        with np.errstate(all="ignore"):
            same = [n for n in narrow if np.array_equal(x.astype(n).astype(x.dtype), x, equal_nan=x.dtype.kind == "f")]
        if not same:
            return
        attributes, fed = {"to": helper.np_dtype_to_tensor_dtype(x.dtype)}, x.astype(rng.choice(same))
    for node in graph.nodes:  # what read the input reads this node
        node.input[:] = [fresh if n == name else n for n in node.input]
    names[:] = [fresh if n == name else n for n in names]
    graph.nodes.insert(
        0, helper.make_node(kind, [name, *more], [fresh], f"{kind.lower()}_before{len(graph.nodes)}", **attributes)
    )
    graph.feeds[number] = np.ascontiguousarray(fed).reshape(fed.shape)
    graph.inputs[number].CopyFrom(_typed(name, fed))


_FLOATS = ("float", "float16", "double")
_INTEGERS = ("int32", "int64")
_MOVING = ("Transpose", "ReduceMax", "ReduceSum", "Reshape", "Concat", "Add", "Mul", "Flatten")
#: Operators behind floats, integers and booleans. With "/": the second operand is a constant, with "\": the first.
_BEHIND = {
    **dict.fromkeys(
        _FLOATS,
        (*_MOVING, "Neg", "Abs", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Softplus", "ReduceL2", "Softmax", "Cast")
        + ("Mul/", "Add/", "Div/", "Sub\\", "Max/", "Min/", "Less/", "Greater\\", "Equal/", "PRelu/"),
    ),
    **dict.fromkeys(_INTEGERS, (*_MOVING, "Neg", "Abs", "Cast", "Mul/", "Add/", "Sub\\", "Equal/", "Less/", "Div/")),
    "bool": ("Not", "Transpose", "Reshape", "Concat", "And", "Cast"),
}
#: What a Cast makes of these: no numbers that the other has no form for.
_CASTS = {
    "float": ("float16", "double", "bool"), "float16": ("float", "double", "bool"), "double": ("float", "bool"),
    "int32": ("int64", "float", "double", "bool"), "int64": ("int32", "float", "bool"),
    "bool": ("float", "int32", "float16", "int64"),
}  # fmt: skip


def behind(graph: Graph, outputs: Sequence[str], dtype: str) -> tuple[list[str], str]:
    """What reads the first output, up to three nodes; names of the graph's outputs, and the first one's dtype."""
    if dtype not in _BEHIND or graph.rng.random() < 0.3:
        return list(filter(None, outputs)), dtype
    y = outputs[0]
    for number in range(graph.rng.choice((1, 1, 2, 3))):
        y, dtype = _put_behind(graph, y, dtype, f"after{number}")
    return [y, *filter(None, outputs[graph.rng.randint(0, 1) :])], dtype


def _put_behind(graph: Graph, y: str, dtype: str, name: str) -> tuple[str, str]:
    rng = graph.rng
    kind = rng.choice(_BEHIND[dtype])
    op, inputs, attributes = kind.rstrip("/\\"), [y], {}
    kept = np.dtype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(dtype.upper())))
    if kind[-1] in "/\\":
        constant = graph.weight(rng.choice((0, 1, 2, 3) if op != "Div" else (2, 3)), kept)
        inputs = [y, constant] if kind[-1] == "/" else [constant, y]
    elif op in ("Add", "Mul", "And", "Concat"):
        inputs = [y, y]
    if op.startswith("Reduce"):
        attributes = {"keepdims": rng.randint(0, 1)}
    elif op == "Softmax":
        attributes = {"axis": -1}  # which is the same in all opsets
    elif op == "Concat":
        attributes = {"axis": 0}
    elif op == "Reshape":
        inputs = [y, graph.weight([-1], np.int64)]
    elif op == "Cast":
        dtype = rng.choice(_CASTS[dtype])
        attributes = {"to": onnx.TensorProto.DataType.Value(dtype.upper())}
    elif op in ("Less", "Greater", "Equal"):
        dtype = "bool"
    graph.node(op, inputs, name, f"{op.lower()}_{name}", **attributes)
    return name, dtype
