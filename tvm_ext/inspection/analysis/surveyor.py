"""An importer that goes on after a node that it cannot import, and so names all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import relax

from ...core.errors import UnsupportedError
from ...frontend.checker import Checked
from ...frontend.graph_importer import GraphImporter
from ...frontend.operators import FIX, refusal
from ...frontend.shapes import dims_of

if TYPE_CHECKING:
    import onnx


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
        unseen: labels of nodes that read what nobody knows the shape of.
    """

    def __init__(self, checked: Checked, model: str, proto: onnx.ModelProto) -> None:
        super().__init__(checked, model)
        self._proto = proto
        self.labels = list(self._labels)
        self.refused: list[Refused] = []
        self.unseen: list[str] = []
        self._inside = False
        self._types: dict[str, Any] | None = None

    def _convert_node(self, node: onnx.NodeProto) -> None:
        if self._inside:
            super()._convert_node(node)
            return
        if any(name and self._nodes.get(name) is None for name in node.input):
            self.unseen.append(self._label)
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
        with self._naming_errors():
            super()._convert_node(node)

    def _check_static(self, node: onnx.NodeProto) -> None:
        if self._knows_outputs(node):
            with self._noting(node), self._naming_errors():
                super()._check_static(node)

    def _close(self, node: onnx.NodeProto, label: str) -> None:
        if self._knows_outputs(node):
            super()._close(node, label)

    def _knows_outputs(self, node: onnx.NodeProto) -> bool:
        return all(self._nodes.get(name) is not None for name in node.output if name)

    @contextlib.contextmanager
    def _noting(self, node: onnx.NodeProto) -> Iterator[None]:
        """Note why the node is refused, and go on without it."""
        label = self._label
        try:
            yield
        except UnsupportedError as error:
            reason = error.message.partition(f"{self._model}: ")[2] or error.message
            self.refused.append(Refused(label, node.op_type, _essence(reason, label), error.fix))
            self._label, self._node = label, node
            for name in node.output:
                self._nodes.pop(name, None)
            self._stand_in(node)

    def _stand_in(self, node: onnx.NodeProto) -> None:
        """Values of the types that ONNX infers, for what a node that is refused would make."""
        if self._types is None:
            self._types = inferred_types(self._proto, self._checked)
        for name in filter(None, node.output):
            if (found := self._types.get(name)) is not None:
                unknown = relax.call_dps_packed("tvm_ext.unsupported", relax.Tuple([]), relax.TensorType(*found))
                self._nodes[name] = self.bb.emit(unknown)

    def _output(self, output: onnx.ValueInfoProto) -> relax.Var:
        if not self.refused and not self.unseen:
            try:
                return super()._output(output)
            except UnsupportedError as error:
                maker = self.trace.makers.get(output.name, "")
                reason = error.message.partition(f"{self._model}: ")[2] or error.message
                self.refused.append(Refused(maker, "", reason, error.fix))
        var = self.bb.emit(relax.op.zeros(relax.ShapeExpr([1]), "float32"))
        self.trace.made.setdefault(var, (output.name, []))
        self.trace.outputs.append(var)
        self._mark([])
        return var


def _essence(reason: str, label: str) -> str:
    """The reason without the name of the node, which has a column of its own."""
    for found in (" cannot be compiled: ", " cannot be converted: "):
        before, cut, after = reason.partition(found)
        if cut and before.startswith(f"node {label!r}"):
            return after
    return reason


def inferred_types(proto: onnx.ModelProto, checked: Checked) -> dict[str, tuple[tuple[int, ...], str]]:
    """ONNX value -> static shape and dtype, where the model states them or ONNX infers them."""
    import onnx

    from ...core.errors import TvmExtError

    skeleton = onnx.ModelProto()
    skeleton.ir_version = proto.ir_version
    skeleton.opset_import.extend(proto.opset_import)
    graph = skeleton.graph
    graph.name = "g"
    graph.node.extend(checked.nodes)
    for spec in checked.inputs:
        code = onnx.helper.np_dtype_to_tensor_dtype(spec.numpy_dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(spec.name, code, spec.sizes))
    for tensor in checked.graph.initializer:
        if len(tensor.raw_data) <= 4096:  # values that may be shapes
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    graph.value_info.extend(checked.graph.value_info)
    graph.output.extend(checked.graph.output)
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    except (TvmExtError, RuntimeError, ValueError, TypeError, onnx.shape_inference.InferenceError):
        inferred = skeleton
    found = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        dims, code = dims_of(value), value.type.tensor_type.elem_type
        if dims is not None and all(isinstance(dim, int) for dim in dims) and code:
            found[value.name] = (
                tuple(int(dim) for dim in dims if dim is not None),
                str(onnx.helper.tensor_dtype_to_np_dtype(code)),
            )
    return found
