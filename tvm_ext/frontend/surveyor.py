"""An importer that goes on after a node that it cannot import, and so names all of them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from tvm import relax

from ..core.errors import UnsupportedError
from .checks.checker import Checked
from .checks.graph_order import reads_of
from .checks.inference import check_shapes, dims_known, is_sensible, static_type
from .checks.operators import refusal
from .checks.output_types import output_types
from .checks.refusal import FIX
from .graph_importer import GraphImporter
from .reading.shapes import agree


@dataclass(frozen=True)
class Refused:
    """A node that cannot be compiled.

    Attributes:
        node, op: its label and operator.
        reason: why; fix: what the user can do.
    """

    node: str
    op: str
    reason: str
    fix: str


class Surveyor(GraphImporter):
    """Imports a checked graph, and notes what cannot be.

    Args:
        checked: the graph.
        model: its name.
        proto: the whole model.

    Attributes:
        labels: of the nodes, in order.
        refused: nodes that cannot be compiled.
        unseen: label of a node that reads what no program has (strings, a sequence, a tensor of unknown shape) -> this.
        kinds: ONNX type of each value that nodes which are refused would make, as far as it is known.
    """

    def __init__(self, checked: Checked, model: str, proto: onnx.ModelProto) -> None:
        super().__init__(checked, model)
        self._proto = proto
        self.labels = list(self._labels)
        self.refused: list[Refused] = []
        self.unseen: dict[str, str] = {}
        self._inside = False
        graph = checked.graph
        self._stated = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        self.kinds: dict[str, onnx.TypeProto] = {}
        for tensor in graph.initializer:  # of strings
            if tensor.name not in checked.weights:
                kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                self.kinds[tensor.name] = kind

    def has(self, name: str) -> bool:
        """Whether something in the program stands for a value."""
        return self._nodes.get(name) is not None

    def kind(self, name: str) -> onnx.TypeProto | None:
        """The ONNX type of a value; None if it is not known."""
        kind = self.type_of(name) if self.has(name) else self.kinds.get(name)
        return kind if kind is not None and kind.WhichOneof("value") else None

    def _convert_node(self, node: onnx.NodeProto) -> None:
        if self._inside:
            super()._convert_node(node)
            return
        if unknown := [name for name in reads_of(node) if not self.has(name)]:
            self.unseen[self.label] = unknown[0]
            self._stand_in(node)
            return
        self._inside = True
        try:
            with self._noting(node):
                self._refuse_or_convert(node)
        finally:
            self._inside = False

    def _refuse_or_convert(self, node: onnx.NodeProto) -> None:
        if reason := refusal(node, self._checked.opsets):
            raise UnsupportedError(f"operator {node.op_type!r} (domain {node.domain or 'ai.onnx'!r}) {reason}", fix=FIX)
        with self._converting(node, self.label):
            super()._convert_node(node)

    def _check_static(self, node: onnx.NodeProto) -> None:
        if self._knows_outputs(node):
            with self._noting(node):
                with self._converting(node, self.label):
                    super()._check_static(node)
                outputs = {name: self._nodes[name] for name in node.output if name}
                check_shapes(self._types_made(node), outputs, self.trace.makers, self._model)

    def _types_made(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        """Types of a node's outputs by what is known of its inputs."""
        reads = list(reads_of(node))
        kinds = {name: kind for name in reads if (kind := self.kind(name)) is not None}
        known = {name: value for name in reads if self.has(name)
                 and (value := self.known(name)) is not None}  # fmt: skip
        return output_types(node, self._checked.opsets, self._proto.ir_version, kinds, known)

    def _close(self, node: onnx.NodeProto, label: str) -> None:
        if self._knows_outputs(node):
            super()._close(node, label)

    def _knows_outputs(self, node: onnx.NodeProto) -> bool:
        return all(self.has(name) for name in node.output if name)

    @contextlib.contextmanager
    def _noting(self, node: onnx.NodeProto) -> Iterator[None]:
        """Note why the node is refused, and go on without it."""
        label = self.label
        try:
            yield
        except UnsupportedError as error:
            self._refuse(label, node.op_type, error)
            self.label, self.node = label, node
            for name in node.output:
                self._nodes.pop(name, None)
            self._stand_in(node)

    def _refuse(self, label: str, op: str, error: UnsupportedError) -> None:
        """Note a node, with the reason, without the names of model and node, which have places of their own."""
        reason = error.message.partition(f"{self._model}: ")[2] or error.message
        for words in (" cannot be compiled: ", " cannot be converted: "):
            before, cut, after = reason.partition(words)
            reason = after if cut and before.startswith(f"node {label!r}") else reason
        self.refused.append(Refused(label, op, reason, error.fix))

    def _stand_in(self, node: onnx.NodeProto) -> None:
        """Values of the types that are known, for what a node that is refused would make."""
        inferred = self._types_made(node)
        for name in filter(None, node.output):
            kind = _better(inferred.get(name), self._stated.get(name))
            if kind is None or not is_sensible(kind):
                continue
            self.kinds[name] = kind
            if (static := static_type(kind)) is not None:
                unknown = relax.call_dps_packed("tvm_ext.unsupported", relax.Tuple([]), relax.TensorType(*static))
                self._nodes[name] = self.bb.emit(unknown)

    def _output(self, output: onnx.ValueInfoProto) -> relax.Var:
        if not self.refused and not self.unseen:
            try:
                return super()._output(output)
            except UnsupportedError as error:
                self._refuse(self.trace.makers.get(output.name, ""), "", error)
        var = self.bb.emit(relax.op.zeros(relax.ShapeExpr([1]), "float32"))
        self.trace.results.setdefault(var, (output.name, []))
        self.trace.outputs.append(var)
        self._mark([])
        return var


def _better(inferred: onnx.TypeProto | None, stated: onnx.TypeProto | None) -> onnx.TypeProto | None:
    """The type that is inferred; where that leaves the shape open, what the model states if both agree."""
    if inferred is None or stated is None or static_type(inferred) is not None:
        return stated if inferred is None else inferred
    known, said = dims_known(inferred), dims_known(stated)
    if said is None or inferred.tensor_type.elem_type != stated.tensor_type.elem_type:
        return inferred
    fits = known is None or agree(known, said)
    return stated if fits and static_type(stated) is not None else inferred
