"""What the conversion of a graph offers to those who put nodes into it: branches, loops, definitions, sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.ir import GenericConst

from ...core.cost.work import bytes_of
from ...core.graph.offload_plan import OffloadedRegion
from ...core.numbers.storage import outgrows
from ..naming import Names
from ..reading.narrow import widened
from .copies import Copies

if TYPE_CHECKING:
    from ..checks.checker import Shared
    from ..importer import Imported


class Graph(Protocol):
    """A graph while it is converted.

    Attributes:
        opset: version of the standard operators.
        opsets: of all domains.
        names: of all values; gives names that nothing has yet.
        node, label: that is converted, and its name in reports: that of the node of the graph that it stands for.
        inner: how many nodes branches, loops and definitions became so far.
        regions: that drivers run; calls of them are emitted.
        shared: constants that imports of the model at other sizes take too; None where it is imported once.
        sizes: of how many elements other than 0 a tensor has: Relax variable -> the count, and the dimension's name.
        sized: whether what it becomes has to be the same at all sizes of a model that is imported at several.
    """

    opset: int
    opsets: Mapping[str, int]
    names: Names
    node: onnx.NodeProto
    label: str
    inner: int
    regions: list[OffloadedRegion]
    shared: Shared | None
    sizes: dict[Any, tuple[Any, str]]
    sized: bool

    def most(self, question: str, own: int) -> int:
        """The largest answer to a question about the node in all imports of a model at several sizes.

        Args:
            own: the answer in this one.
        """

    def convert(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Convert nodes in order; the values they make have fresh names."""

    def value(self, name: str) -> Any:
        """What a name stands for: a Relax expression, a `TensorList`, or `Nothing`."""

    def known(self, name: str) -> np.ndarray | None:
        """The value of a name, if it is known now."""

    def bind(self, name: str, value: Any) -> None:
        """Let a name stand for a value."""

    def type_of(self, name: str) -> onnx.TypeProto:
        """The ONNX type of what a name stands for; an empty one where that is no tensor and no sequence."""

    def import_body(self, proto: onnx.ModelProto) -> tuple[str, Imported]:
        """Import a model of static shapes as a function of this one; its name, and what it is."""

    def is_read(self, name: str) -> bool:
        """Whether something may read a value."""


def run_body(graph: Graph, body: onnx.GraphProto, inputs: Sequence[str] = (), label: str | None = None) -> list[str]:
    """Convert a copy of a body (a branch, one step of a loop) into the graph.

    Args:
        graph: where the copy goes.
        body: its names stand for the graph's values, except those that it makes itself.
        inputs: values of the graph for the body's inputs, in order.
        label: name of every copy; None: nodes keep their own names.

    Returns:
        The graph's names of the body's outputs.
    """
    renamed = dict(zip((value.name for value in body.input), inputs, strict=True))
    local = {t.name for t in body.initializer} | {name for node in body.node for name in node.output if name}
    copies = Copies(label, graph.names, renamed, local)
    for tensor in body.initializer:
        graph.bind(copies.name(tensor.name), constant_of(numpy_helper.to_array(tensor)))
    graph.convert(copies.nodes(body.node))
    return [copies.name(value.name) for value in body.output]


def constant_of(array: np.ndarray) -> GenericConst:
    """A Relax constant as the program holds it: integers of 2 and 4 bits in bytes."""
    array = widened(np.asarray(array))
    # np.ascontiguousarray makes a vector of a scalar, and relax.const of an array narrows int64 and float64.
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)), str(array.dtype))


def as_tensor(value: Any) -> Any:
    """Static shapes and numbers, which converters pass on, as tensors of int64; anything else as it is."""
    if isinstance(value, relax.ShapeExpr) and all(isinstance(d, tirx.IntImm) for d in value.values):
        return constant_of(np.array([int(d) for d in value.values], np.int64))
    return constant_of(np.array(int(value), np.int64)) if isinstance(value, tirx.IntImm) else value


def constant_outgrows(result: GenericConst, inputs: Iterable[Any]) -> bool:
    """Whether a constant is large, and much larger than the different constants that it was made of."""
    operands: list[GenericConst] = []
    for x in inputs:
        if isinstance(x, GenericConst) and not any(x.same_as(other) for other in operands):
            operands.append(x)
    return outgrows(bytes_of(result), sum(map(bytes_of, operands)))
