"""Sequences and optionals: lists that exist while a model is converted, and of which nothing is left in the program.

s = SequenceInsert(SequenceConstruct(a, b), c, 0); y = SequenceAt(s, 1)   ->   y = a
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tvm import relax

from ...core.graph.relax_graph import dtype_of, shape_of
from ..checks.refusal import UNFIT, Refusal
from .counted import Counted
from .subgraph import Graph, as_tensor, constant_of


@dataclasses.dataclass(frozen=True)
class TensorList:
    """A sequence.

    Attributes:
        elements: Relax expressions, bound ones.
        dtype: of the elements.
    """

    elements: tuple[Any, ...]
    dtype: str

    def __len__(self) -> int:
        return len(self.elements)


@dataclasses.dataclass(frozen=True)
class Nothing:
    """An optional without an element."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor to a program: no sequence, no empty optional, no shape."""
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)


def describe(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, TensorList):
        return f"a sequence of {len(value)} tensors"
    if is_tensor(value):
        shape = shape_of(value)
        return f"{dtype_of(value)} of " + ("a shape known at run time only" if shape is None else f"shape {shape}")
    if isinstance(value, Counted):
        sizes = enumerate(shape_of(value.tensor) or ())
        dims = [str(size) if axis != value.axis else f"at most {size}" for axis, size in sizes]
        return f"{dtype_of(value.tensor)} of shape ({', '.join(dims)}), as values decide in {value.maker}"
    return "an empty optional" if isinstance(value, Nothing) else f"a {type(value).__name__}"


def check_tensors(node: onnx.NodeProto, value: Callable[[str], Any]) -> None:
    """See that a node, which takes tensors alone, gets no others.

    Args:
        value: what a name stands for.

    Raises:
        Refusal: names the operand.
    """
    for name in filter(None, node.input):
        if isinstance(operand := value(name), (TensorList, Nothing)):
            raise Refusal(f"its input {name!r} is {describe(operand)}, not a tensor")


def takes(node: onnx.NodeProto, graph: Graph) -> bool:
    """Whether a node is converted here: it works on sequences, or passes one on."""
    if node.op_type in SEQUENCES:
        return True
    return node.op_type == "Identity" and isinstance(graph.value(node.input[0]), (TensorList, Nothing))


def convert(node: onnx.NodeProto, graph: Graph) -> None:
    """Convert a node that works on sequences or optionals, and bind its output.

    Raises:
        Refusal: a position, length or element is not known now.
    """
    if node.op_type == "Identity":
        result = graph.value(node.input[0])
    else:
        inputs = [graph.value(name) if name else None for name in node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        result = SEQUENCES[node.op_type](_Node(node, graph, inputs, attributes))
    graph.bind(node.output[0], result)


@dataclasses.dataclass(frozen=True)
class _Node:
    """A node with its operands."""

    node: onnx.NodeProto
    graph: Graph
    inputs: list[Any]
    attributes: dict[str, Any]

    def sequence(self, i: int = 0) -> TensorList:
        """Input i, a sequence."""
        if not isinstance(sequence := self.inputs[i], TensorList):
            raise Refusal(f"input {self.node.input[i]!r} is {describe(sequence)}, not a sequence known at compile time")
        return sequence

    def position(self, i: int, default: int, last: int) -> int:
        """Input i as a position from 0 to `last`; negative ones count from the end of the sequence."""
        at = default
        if len(self.inputs) > i and self.inputs[i] is not None:
            at = int(self.known(i).reshape(-1)[0])
        at += len(self.sequence()) if at < 0 else 0
        if not 0 <= at <= last:
            raise Refusal(f"position {at} lies outside the sequence", fix=UNFIT)
        return at

    def known(self, i: int) -> np.ndarray:
        """The value of input i."""
        if (value := self.graph.known(self.node.input[i])) is None:
            name = self.node.input[i]
            raise Refusal(f"input {name!r} is computed, and what a sequence holds must be known", unknown=name)
        return value


def _construct(node: _Node) -> TensorList:
    elements = tuple(map(as_tensor, node.inputs))
    return TensorList(elements, dtype_of(elements[0]))


def _empty(node: _Node) -> TensorList:
    return TensorList((), str(helper.tensor_dtype_to_np_dtype(node.attributes.get("dtype", TensorProto.FLOAT))))


def _at(node: _Node) -> Any:
    sequence = node.sequence()
    return sequence.elements[node.position(1, 0, len(sequence) - 1)]


def _insert(node: _Node) -> TensorList:
    elements, new = list(node.sequence().elements), as_tensor(node.inputs[1])
    elements.insert(node.position(2, len(elements), len(elements)), new)
    return TensorList(tuple(elements), dtype_of(new))


def _erase(node: _Node) -> TensorList:
    sequence = node.sequence()
    at = node.position(1, -1, len(sequence) - 1)
    return TensorList(sequence.elements[:at] + sequence.elements[at + 1 :], sequence.dtype)


def _length(node: _Node) -> Any:
    return constant_of(np.array(len(node.sequence()), np.int64))


def _concat(node: _Node) -> Any:
    elements, axis = list(node.sequence().elements), int(node.attributes["axis"])
    if not elements:
        raise Refusal("an empty sequence has nothing to join")
    if node.attributes.get("new_axis", 0):
        elements = [relax.op.expand_dims(element, axis) for element in elements]
    return relax.op.concat(elements, axis)


def _split(node: _Node) -> TensorList:
    """Pieces of the sizes given, of one size (the last may be smaller), or of 1, which may lose their axis."""
    x = as_tensor(node.inputs[0])
    shape, axis = shape_of(x), int(node.attributes.get("axis", 0))
    if shape is None:
        raise Refusal(f"input {node.node.input[0]!r} has a shape that is known at run time only")
    axis, is_stated = axis % len(shape), len(node.inputs) > 1 and node.inputs[1] is not None
    split = node.known(1) if is_stated else np.array(1)
    if split.ndim == 0:
        if int(split) < 1:
            raise Refusal(f"pieces of {int(split)}", fix=UNFIT)
        starts = list(range(0, shape[axis], int(split)))
        sizes = [min(int(split), shape[axis] - start) for start in starts]
    else:
        sizes = [int(size) for size in split]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
    block, drop = relax.BlockBuilder.current(), not is_stated and not node.attributes.get("keepdims", 1)
    pieces = []
    for start, size in zip(starts, sizes, strict=True):
        piece = block.emit(relax.op.strided_slice(x, [axis], [start], [start + size]))
        pieces.append(block.emit(relax.op.squeeze(piece, [axis])) if drop else piece)
    return TensorList(tuple(pieces), dtype_of(x))


def _optional(node: _Node) -> Any:
    return node.inputs[0] if node.inputs and node.inputs[0] is not None else Nothing()


def _has_element(node: _Node) -> Any:
    there = bool(node.inputs) and node.inputs[0] is not None and not isinstance(node.inputs[0], Nothing)
    return constant_of(np.array(there))


def _get_element(node: _Node) -> Any:
    if isinstance(node.inputs[0], Nothing):
        raise Refusal("the optional is empty", fix=UNFIT)
    return node.inputs[0]


#: Operators on sequences and optionals.
SEQUENCES: dict[str, Callable[[_Node], Any]] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
