"""TVM's ONNX importer, made to say which node each binding of `main` came from.

The converters and the loop over nodes are the stock ones. Around them: nodes go in one at a time, what is known at
import becomes a constant, what a node leaves unbound is bound before the next one starts, and a marker binding closes
each node, so that afterwards all bindings between two markers are that node's; even those the normalizer made in C++.
`relax_names` takes the markers out.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax, topi
from tvm.ir import GenericConst, IRModule
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ..core.errors import UnsupportedError
from .checker import Checked
from .converters import CONVERTERS, in_float32
from .known_values import known_outputs
from .naming import identifier, node_labels
from .narrow import NARROW, stored, widened, wrapped

if TYPE_CHECKING:
    import onnx


#: BlockBuilders of all threads share one stack of open functions.
_ONE_AT_A_TIME = threading.Lock()


@dataclass
class Trace:
    """What an import left behind.

    Attributes:
        mod: the module, markers still inside.
        segments: marker variable -> labels of the nodes whose bindings it closes.
        made: bound variable that is a node's output -> ONNX name to call it by, and labels of the nodes behind it.
        outputs: the variables of the graph's outputs, in order.
        makers: ONNX value -> label of the node that makes it.
    """

    mod: IRModule | None = None
    segments: dict[relax.Var, list[str]] = field(default_factory=dict)
    made: dict[relax.Var, tuple[str, list[str]]] = field(default_factory=dict)
    outputs: list[relax.Var] = field(default_factory=list)
    makers: dict[str, str] = field(default_factory=dict)


class _ConverterFailed(BaseException):
    """Carries a converter's exception through the stock loop, which prints every `Exception` to stdout."""

    def __init__(self, error: Exception, label: str, op_type: str) -> None:
        self.error, self.label, self.op_type = error, label, op_type
        super().__init__(str(error))


class GraphImporter(ONNXGraphImporter):
    """Converts a checked graph; see the module's docstring."""

    def __init__(self, checked: Checked, model: str) -> None:
        super().__init__({}, None)
        self._checked, self._model = checked, model
        self._depth = 0
        own = list(checked.graph.node)
        labels = {id(node): label for node, label in zip(own, node_labels(own), strict=True)}
        # what stands for a node that nobody converts has that node's name, and is no node of its own to users
        self._labels = [labels.get(id(node), node.name) for node in checked.nodes]
        self._label = ""
        dtypes = {spec.name: spec.dtype for spec in checked.inputs}
        dtypes |= {name: array.dtype.name for name, array in checked.weights.items()}
        self._narrow = {name: dtype for name, dtype in dtypes.items() if dtype in NARROW}
        self.trace = Trace()
        for node, label in zip(checked.nodes, self._labels, strict=True):
            self.trace.makers.update(dict.fromkeys(node.output, label))

    def convert(self) -> Trace:
        """Convert the graph.

        Raises:
            UnsupportedError: a converter refused; names the ONNX node, its operator, the opset and the reason.
        """
        graph = self._checked.graph
        stand_in = types.SimpleNamespace(
            node=self._checked.nodes, initializer=graph.initializer, input=graph.input,
            output=[f"output {i}" for i in range(len(graph.output))],
        )  # fmt: skip
        with _ONE_AT_A_TIME:
            try:
                self.trace.mod = self.from_onnx(stand_in, self._checked.opset)
            except UnsupportedError:
                self.bb._end_block()  # left open, TVM would warn about it on stderr
                raise
        return self.trace

    # ------------------------------------------------------------ steps of the stock importer
    def _parse_graph_initializers(self, graph: Any) -> None:
        for name, array in self._checked.weights.items():
            self._nodes[name] = _constant(array)

    def _parse_graph_input(self, graph: Any) -> None:
        for spec in self._checked.inputs:
            var = relax.Var(identifier(spec.name), relax.TensorType(spec.shape, stored(spec.dtype)))
            self._nodes[spec.name] = self._inputs[spec.name] = var
            self._input_names.append(spec.name)
        self._num_input = len(self._checked.inputs)

    def _construct_nodes(self, graph: Any) -> None:
        for spec in self._checked.inputs:
            if spec.dtype in NARROW:
                self._nodes[spec.name] = self.bb.emit(wrapped(self._inputs[spec.name], spec.dtype))
        for node, label in zip(graph.node, self._labels, strict=True):
            with self._naming_errors(node, label):
                self._convert_node(node)
            self._close(node, label)
        for i, output in enumerate(self._checked.graph.output):
            self._nodes[f"output {i}"] = self._output(output)

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        try:
            return self.bb.normalize(in_float32(op_name, inputs, lambda given: self._convert(op_name, given, attrs)))
        except Exception as error:
            inner = attrs["tvm_custom"]["name"] if self._depth else ""
            raise _ConverterFailed(error, inner or self._label, op_name) from error

    def _convert(self, op_name: str, inputs: Any, attrs: dict[str, Any]) -> Any:
        if op_name in CONVERTERS:
            return CONVERTERS[op_name](inputs, attrs, self.opset)
        return super()._convert_operator(op_name, inputs, attrs, self.opset)

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Done before, by `check_operators`."""

    def _convert_subgraph(self, bb: relax.BlockBuilder, graph: onnx.GraphProto) -> Any:
        self._depth += 1
        try:
            return super()._convert_subgraph(bb, graph)
        finally:
            self._depth -= 1

    # ------------------------------------------------------------ what is added
    def _convert_node(self, node: onnx.NodeProto) -> None:
        node = self._of_narrow(node)
        if self._known(node):
            return
        if node.op_type == "If" and isinstance(condition := self._nodes[node.input[0]], GenericConst):
            branch = "then_branch" if condition.value.numpy().all() else "else_branch"
            self._take(node, next(a.g for a in node.attribute if a.name == branch))
        else:
            super()._construct_nodes(types.SimpleNamespace(node=[node]))

    def _of_narrow(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node, where an operand of 2 or 4 bits, which the program has in 8, would mean another dtype to it.

        Raises:
            NotImplementedError: it has no meaning with 8 bits.
        """
        narrow = [self._narrow[name] for name in node.input[1:] if name in self._narrow]
        if narrow and node.op_type == "QuantizeLinear":
            raise NotImplementedError(f"quantization to {narrow[0]}")
        if not narrow or node.op_type != "CastLike":
            return node
        from onnx import helper

        to = helper.np_dtype_to_tensor_dtype(np.dtype(narrow[0]))
        return helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)

    def _take(self, node: onnx.NodeProto, branch: onnx.GraphProto) -> None:
        """The branch of an If that a constant condition takes: its nodes stand in the graph."""
        from onnx import numpy_helper

        self._nodes.update({t.name: _constant(numpy_helper.to_array(t)) for t in branch.initializer})
        for inner in branch.node:
            self._convert_node(inner)
            self._nodes.update({name: self._bind(self._nodes[name]) for name in inner.output if name})
        for name, result in zip(node.output, branch.output, strict=True):
            self._nodes[name] = self._nodes[result.name]

    def _known(self, node: onnx.NodeProto) -> bool:
        """Make the outputs of a node constants, if they can be computed now."""
        arrays = known_outputs(node, [self._nodes[name] if name else None for name in node.input], self.opset)
        if arrays is not None:
            self._nodes.update(zip(filter(None, node.output), map(_constant, arrays), strict=True))
        return arrays is not None

    @contextlib.contextmanager
    def _naming_errors(self, node: onnx.NodeProto, label: str) -> Iterator[None]:
        self._label = label
        try:
            yield
        except _ConverterFailed as failed:
            raise self._refusal(failed.label, failed.op_type, failed.error) from failed.error
        except Exception as error:
            raise self._refusal(label, node.op_type, error) from error

    def _refusal(self, label: str, op_type: str, error: Exception) -> UnsupportedError:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return UnsupportedError(
            f"{self._model}: node {label!r} ({op_type}, opset {self._checked.opset}) cannot be converted: "
            f"{type(error).__name__}: {reason[:300]}",
            fix="TVM's converter has this limit: export the model so that it needs no such node, or another opset",
        )

    def _close(self, node: onnx.NodeProto, label: str) -> None:
        """Bind what the node left unbound, note its outputs, and set its marker."""
        single = sum(map(bool, node.output)) == 1
        for name in filter(None, node.output):
            value = self._nodes[name] = self._bind(self._nodes.get(name))
            if isinstance(value, relax.Var) and value in self.trace.made:  # Identity, Dropout: another's variable
                self.trace.made[value][1].append(label)
            elif isinstance(value, relax.Var) and value not in self._inputs.values():
                self.trace.made[value] = (node.name if single and node.name else name, [label])
        self._mark([label])

    def _mark(self, labels: list[str]) -> None:
        self.trace.segments[self.bb.emit(relax.const(len(self.trace.segments), "int64"))] = labels

    def _bind(self, value: Any) -> Any:
        """Bind a computation to a variable; constants, shapes, numbers and sequences stay values."""
        if isinstance(value, (relax.Call, relax.TupleGetItem)) and not tvm.ir.is_prim_expr(value):
            return self.bb.emit(value)
        return value

    def _output(self, output: onnx.ValueInfoProto) -> relax.Var:
        """A variable of its own for an output: no other output's, no input, no constant, of the dtype stated."""
        var = self._tensor(output)
        maker = self.trace.makers.get(output.name)
        labels = self.trace.made.get(var, ("", [maker] if maker else []))[1]
        wanted = _stated_dtype(output)
        if wanted and str(var.ty.dtype) != stored(wanted):
            var = self.bb.emit(relax.op.astype(var, stored(wanted)))
        elif var not in self.trace.made or var in self.trace.outputs:
            # a copy that no simplification can take for a no-op: the caller gets memory of its own
            var = self.bb.emit(self.bb.call_te(topi.identity, var, primfunc_name_hint="copy"))
        self.trace.made.setdefault(var, (output.name, list(labels)))
        self.trace.outputs.append(var)
        self._mark(labels)
        return var

    def _tensor(self, output: onnx.ValueInfoProto) -> Any:
        value = self._nodes[output.name]
        if isinstance(value, relax.ShapeExpr) and all(isinstance(d, (int, tvm.tirx.IntImm)) for d in value.values):
            value = relax.const(np.array([int(d) for d in value.values], "int64"))
        elif isinstance(value, tvm.tirx.IntImm):
            value = relax.const(np.array(int(value), "int64"))
        if isinstance(value, (relax.Var, GenericConst)) and isinstance(value.ty, relax.TensorType):
            return value
        raise UnsupportedError(
            f"{self._model}: output {output.name!r} of node {self.trace.makers.get(output.name, '')!r} is no tensor "
            f"but {type(value).__name__}",
            fix="sequences, optionals and shapes that are only known at run time cannot be outputs",
        )


def _constant(array: np.ndarray) -> GenericConst:
    array = widened(array)
    # np.ascontiguousarray makes a vector of a scalar, and relax.const of an array narrows int64 and float64.
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)), str(array.dtype))


def _stated_dtype(output: onnx.ValueInfoProto) -> str:
    import onnx

    code = output.type.tensor_type.elem_type
    return str(onnx.helper.tensor_dtype_to_np_dtype(code)) if code else ""
