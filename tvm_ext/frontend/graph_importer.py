"""TVM's ONNX importer, made to say which node each binding of `main` came from.

The converters and the loop over nodes are the stock ones. Around them: nodes go in one at a time, what is known at
import becomes a constant, what a node leaves unbound is bound before the next one starts, and a marker binding closes
each node, so that afterwards all bindings between two markers are that node's; even those the normalizer made in C++.
`relax_names` takes the markers out. Branches, steps of loops and definitions of operators are converted like nodes of
the graph, in the place of the node that they stand for, with all that is known by then.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import tvm
from tvm import relax, topi
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ..core.errors import TvmExtError
from ..core.graph.relax_graph import dtype_of, shape_of
from ..core.numbers.storage import Growth
from .checks.attributes import check_axis, float_defaults, is_stated
from .checks.checker import Checked
from .checks.graph_order import inputs_behind, reads_of
from .checks.inference import check_inner, dims_known, types_of_outputs
from .checks.operators import lacks_converter, refusal
from .checks.refusal import FIX, ConverterFailed, Refusal, TooLong, unsupported
from .control_flow import sequences
from .control_flow.branches import convert_if
from .control_flow.counted import at_most
from .control_flow.functions import definition
from .control_flow.loops import convert_loop, convert_scan
from .control_flow.subgraph import as_tensor, constant_of, constant_outgrows
from .converters import ML, InFloat32, in_bounds, is_narrow, one_or_all, own_converter
from .converters.selection.counting import COUNTING
from .counts import add_counts, carry, convert_counting
from .empty import is_empty, outputs_of_nothing
from .fallback.node import call_of, is_region, labels_of, makers_of
from .known_values import Positions, check_decided, known_outputs, value_of
from .naming import Names, identifier, node_labels
from .outputs import spread_outputs, tensor_of
from .reading.narrow import NARROW, stored, with_stated_dtype, wrapped
from .reading.walk import value_names
from .trace import Trace
from .types import dtype_name
from .types import type_of as type_of_value

if TYPE_CHECKING:
    from .importer import Imported


#: BlockBuilders of all threads share one stack of open functions.
_ONE_AT_A_TIME = threading.RLock()
#: Nodes that loops, branches and definitions of a model may become, all together.
_MOST_INNER = 2_500
#: Elements of an input that may be a parameter, such as a shape, axes or a rate.
_MOST_FROZEN = 64
_CONTROL_FLOW = {"If": convert_if, "Loop": convert_loop, "Scan": convert_scan}


class GraphImporter(ONNXGraphImporter):
    """Converts a checked graph; see the module's docstring."""

    def __init__(self, checked: Checked, model: str, body: str = "", growth: Growth | None = None) -> None:
        super().__init__({}, None)
        self._growth = growth
        self._checked, self._model, self._body = checked, model, body
        self.opset, self.opsets = checked.opset, checked.opsets
        self.shared, self.sized = checked.shared, growth is not None
        self.sizes: dict[relax.Expr, tuple[relax.Expr, str]] = {}
        self.names, self.inner, self._marker = Names(), 0, relax.const(0, "int64")
        for name in value_names(checked.nodes):
            self.names.fresh(name)
        labels = node_labels(checked.graph.node)
        by_output = {tuple(node.output): label for node, label in zip(checked.graph.node, labels, strict=True)}
        self._labels = [by_output[tuple(node.output)] for node in checked.nodes]
        written = {name for node in checked.nodes for name in node.output}
        self._unread = written - {name for node in checked.nodes for name in reads_of(node)}
        self._unread -= {output.name for output in checked.graph.output}
        self._top = self.label = ""  # of the node of the graph, and of what is converted in its place
        self.node = onnx.NodeProto()
        dtypes = {spec.name: spec.dtype for spec in checked.inputs}
        dtypes |= {name: array.dtype.name for name, array in checked.weights.items()}
        self._narrow = {name: dtype for name, dtype in dtypes.items() if dtype in NARROW}
        self._positions = Positions()
        self._in_float32 = InFloat32()
        self.trace = Trace(wide=self._in_float32.wide)
        self.regions = self.trace.regions
        for node, label in zip(checked.nodes, self._labels, strict=True):
            self.trace.makers.update(makers_of(node, label))

    def trace_graph(self) -> Trace:
        """Convert the graph.

        Raises:
            UnsupportedError: a converter refused; names the ONNX node, its operator, the opset and the reason.
        """
        graph = self._checked.graph
        stand_in = types.SimpleNamespace(node=(), initializer=graph.initializer, input=graph.input, output=[])
        with _ONE_AT_A_TIME:
            try:
                self.trace.mod = self.from_onnx(stand_in, self._checked.opset)
                self.trace.values = self._nodes
            except BaseException:
                self.bb._end_block()  # left open, TVM would warn about it on stderr
                raise
        return self.trace

    # ------------------------------------------------------------ steps of the stock importer
    def _parse_graph_initializers(self, graph: Any) -> None:
        known = {} if self.shared is None else self.shared.weights
        known.update({name: constant_of(x) for name, x in self._checked.weights.items() if name not in known})
        self._nodes.update(known)

    def _parse_graph_input(self, graph: Any) -> None:
        for spec in self._checked.inputs:
            var = relax.Var(identifier(spec.name), relax.TensorType(spec.shape, stored(spec.dtype)))
            self._nodes[spec.name] = self._inputs[spec.name] = var
            self._input_names.append(spec.name)
            self.trace.inputs.add(var)
        self._num_input = len(self._checked.inputs)

    def _construct_nodes(self, graph: Any) -> None:
        for spec in self._checked.inputs:
            if spec.dtype in NARROW:
                self._nodes[spec.name] = self.bb.emit(wrapped(self._inputs[spec.name], spec.dtype))
        for node, label in zip(self._checked.nodes, self._labels, strict=True):
            self._top = label
            with self._converting(node, label):
                self._convert_node(node)
                self._check_static(node)
            self._close(node, label)
        spread_outputs(self._checked.graph.output, self._nodes, self.trace, self.names)
        for i, output in enumerate(self.trace.returned):
            graph.output.append(f"output {i}")
            self._nodes[f"output {i}"] = self._output(output)
        self.trace.sizes = add_counts(self.trace.returned, self._nodes, self.trace)
        graph.output.extend(self.trace.sizes)
        self._mark([])

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        try:
            convert = functools.partial(self._convert, op_name, attrs=attrs)
            return self.bb.normalize(self._in_float32(op_name, inputs, convert, self._output_types(self.node)))
        except Exception as error:
            raise ConverterFailed(error) from error

    def _convert(self, op_name: str, inputs: Any, attrs: dict[str, Any]) -> Any:
        inputs = in_bounds(op_name, inputs, attrs)
        if (own := own_converter(op_name, self.node.domain)) is not None:
            opset = self._checked.opsets[ML] if self.node.domain == ML else self.opset
            attrs["tvm_custom"]["graph"] = self
            return one_or_all(own(inputs, attrs, opset))
        result = super()._convert_operator(op_name, inputs, attrs, self.opset)
        if isinstance(result, GenericConst) and self._outgrown(result, inputs):  # made by the program
            hidden = type(inputs)(self.bb.emit(x) if isinstance(x, GenericConst) else x for x in inputs)
            return super()._convert_operator(op_name, hidden, attrs, self.opset)
        return result

    def _outgrown(self, result: GenericConst, inputs: Any) -> bool:
        outgrown = constant_outgrows(result, inputs)
        return self._growth.decided(self._top, outgrown) if self._growth else outgrown

    def _output_types(self, node: onnx.NodeProto) -> Callable[[int, str], bool]:
        """(number of an output, dtype) -> whether ONNX has it in this dtype; also where ONNX does not know."""

        @functools.cache
        def types() -> Mapping[str, onnx.TypeProto]:
            known = self._checked.types
            if all(name in known for name in node.output if name):
                return known
            return types_of_outputs(node, self._checked.opsets, {x: self.type_of(x) for x in node.input if x})

        def has_type(number: int, dtype: str) -> bool:
            name = node.output[number] if number < len(node.output) else ""
            if name not in types():
                return is_narrow(node.op_type, number, dtype, [dtype_name(self.type_of(x)) for x in node.input])
            return dtype_name(types()[name]) in ("", dtype)

        return has_type

    def _parse_attr(self, attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
        return {**float_defaults(self.node, self.opset), **super()._parse_attr(list(filter(is_stated, attributes)))}

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Done before, by `check_operators`."""

    # ------------------------------------------------------------ what others put into the graph
    def convert(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Convert nodes of a branch, a loop or a definition; see :class:`.control_flow.subgraph.Graph`."""
        for node in nodes:
            self.inner += 1
            if self.inner > _MOST_INNER:
                raise TooLong(f"its loops become more than {_MOST_INNER} nodes", fix="shorten its loops")
            with self._converting(node, node.name or self.label):
                if reason := refusal(node, self._checked.opsets):
                    raise Refusal(f"operator {node.op_type!r} {reason}", fix=FIX)
                self._check_inner(node)
                self._convert_node(node)
                self._nodes.update({name: self._bind(self._nodes[name]) for name in node.output if name})

    def _check_inner(self, node: onnx.NodeProto) -> None:
        """Types of a node within another, which the check of the graph does not see; not of integers below 8 bits."""
        kinds = {name: type_of_value(self._nodes[name]) for name in node.input if name in self._nodes}
        if not any(name in self._narrow for name in kinds):
            tensors = {name: kind for name, kind in kinds.items() if kind.HasField("tensor_type")}
            check_inner(node, self._checked.opsets, tensors, self._model)

    def value(self, name: str) -> Any:
        """What a name stands for."""
        return self._nodes[name]

    def known(self, name: str) -> np.ndarray | None:
        """The value of a name, if it is known now."""
        return value_of(self._nodes[name])

    def most(self, question: str, own: int) -> int:
        """The largest answer to a question about the node; see :class:`.control_flow.subgraph.Graph`."""
        return self._growth.most(f"{question} {self._top}", own) if self._growth else own

    def bind(self, name: str, value: Any) -> None:
        """Let a name stand for a value."""
        self._nodes[name] = value

    def import_body(self, proto: onnx.ModelProto) -> tuple[str, Imported]:
        """Import a model of static shapes as a function of this one; its name, and what it is."""
        from .importer import import_body

        name = f"{self._body}body{len(self.trace.bodies)}"
        body = self.trace.bodies[name] = import_body(proto, self._model, name)
        return name, body

    def is_read(self, name: str) -> bool:
        """Whether something may read a value: of those of inner nodes it is not known."""
        return name not in self._unread

    # ------------------------------------------------------------ what is added
    def _convert_node(self, node: onnx.NodeProto) -> None:
        node = with_stated_dtype(node, self._narrow)
        if self._known(node) or carry(node, self, self._convert_operation):
            return
        if node.domain in ("", "ai.onnx") and node.op_type in _CONTROL_FLOW:
            _CONTROL_FLOW[node.op_type](node, self)
        elif sequences.takes(node, self):
            sequences.convert(node, self)
        else:
            check_decided(node, self._is_known)
            self._convert_operation(node)

    def _convert_operation(self, node: onnx.NodeProto) -> None:
        inputs = [self._nodes[name] if name else None for name in node.input]
        if is_region(node):
            outputs, region = call_of(node, [as_tensor(value) for value in inputs])
            self._nodes.update(zip(node.output, outputs, strict=True))
            self.regions.append(region)
        elif (settled := outputs_of_nothing(node, inputs, lambda: self._inferred(node))) is not None:
            self._nodes.update(zip(filter(None, node.output), settled, strict=True))
        elif lacks_converter(node):
            self._define(node)
        else:
            sequences.check_tensors(node, self.value)
            check_axis(node, inputs)
            if node.op_type in COUNTING and node.domain in ("", "ai.onnx"):
                return convert_counting(node, self, inputs)
            super()._construct_nodes(types.SimpleNamespace(node=[node]))

    def _inferred(self, node: onnx.NodeProto) -> list[onnx.TypeProto]:
        """What ONNX infers of the outputs of a node; nothing where it does not know, and no operand is known."""
        stated = [self._checked.types[name] for name in node.output if name in self._checked.types]
        if len(stated) == sum(map(bool, node.output)) and all(None not in (dims_known(t) or (None,)) for t in stated):
            return stated
        inputs = {name: self._nodes[name] for name in node.input if name}
        values = {name: value for name, x in inputs.items() if (value := value_of(x)) is not None}
        if not values and not any(map(is_empty, inputs.values())):
            return []
        types = types_of_outputs(node, self._checked.opsets, {name: self.type_of(name) for name in inputs}, values)
        return [types[name] for name in node.output if name in types]

    def _define(self, node: onnx.NodeProto) -> None:
        """Convert what ONNX defines the node's operator by."""
        nodes = definition(node, self._checked.opsets, self.type_of, self.names)
        if nodes is None:
            raise Refusal("its operator has no converter, and ONNX's definition does not fit the types of its inputs")
        self.convert(nodes)

    def type_of(self, name: str) -> onnx.TypeProto:
        """The ONNX type of what a name stands for."""
        return type_of_value(self._nodes[name], self._narrow.get(name, "")) if name else onnx.TypeProto()

    def _is_known(self, name: str) -> bool:
        return isinstance(self._nodes[name], GenericConst) or self.known(name) is not None

    def _known(self, node: onnx.NodeProto) -> bool:
        """Make the outputs of a node constants, if they can be computed now."""
        inputs = [self._nodes[name] if name else None for name in node.input]
        arrays = known_outputs(node, inputs, self.opset, self.shared.derived if self.shared else None)
        if self._positions.stay(node, arrays):
            arrays = None
        if self._growth and self._growth.decided(f"known {self._top}", arrays is None):
            return False
        if arrays is not None:
            self._nodes.update(zip(filter(None, node.output), map(constant_of, arrays), strict=True))
        return arrays is not None

    @contextlib.contextmanager
    def _converting(self, node: onnx.NodeProto, label: str) -> Iterator[None]:
        """Errors inside name this node; those of nodes within it have been given their names already."""
        outer = self.label, self.node
        self.label, self.node = label, node
        try:
            yield
        except TvmExtError:
            raise
        except ConverterFailed as failed:
            raise self._refusal(failed.error) from failed.error
        except Exception as error:
            raise self._refusal(error) from error
        finally:
            self.label, self.node = outer

    def _refusal(self, error: Exception) -> TvmExtError:
        if isinstance(error, TvmExtError):
            return error
        inputs = self._inputs_behind(error.unknown) if isinstance(error, Refusal) else []
        opset = self._checked.opsets.get("" if self.node.domain == "ai.onnx" else self.node.domain, self.opset)
        operands = {name: sequences.describe(self._nodes[name]) for name in self.node.input if name in self._nodes}
        return unsupported(error, self.node, self.label, opset, operands, self._model, inputs)

    def _inputs_behind(self, unknown: Any) -> list[str]:
        """The graph's inputs that a value comes from, given by name, names or as an operand; else those of a node.

        None where one of them is no parameter but data, which differs in every run: to freeze it is no way out.
        """
        nodes = self._checked.nodes
        named = [unknown] if isinstance(unknown, str) else unknown
        names = [n for n in self.node.input if n and n in self._nodes and self._nodes[n] is unknown]
        sources = inputs_behind(named if isinstance(named, list) else names, nodes, self._inputs)
        node = next(n for n, label in zip(nodes, self._labels, strict=True) if label == self._top)
        sources = sources or inputs_behind(reads_of(node), nodes, self._inputs)
        sizes = {spec.name: math.prod(spec.sizes) for spec in self._checked.inputs}
        return sources if all(sizes[name] <= _MOST_FROZEN for name in sources) else []

    def _check_static(self, node: onnx.NodeProto) -> None:
        """Bind what the node left unbound; tensors have shapes that are known now."""
        for name in filter(None, node.output):
            value = self._nodes[name] = self._bind(self._nodes.get(name))
            if isinstance(value, relax.Var) and dtype_of(value) and shape_of(value) is None:
                raise Refusal(f"the shape of {name!r} is known at run time only ({value.ty})", freeze=True)

    def _close(self, node: onnx.NodeProto, label: str) -> None:
        """Note what the node made, and set its marker."""
        single, labels = sum(map(bool, node.output)) == 1, labels_of(node, label)
        results, inputs = self.trace.results, self.trace.inputs
        for name in filter(None, node.output):
            value = at_most(self._nodes[name])
            if isinstance(value, relax.Var) and value in results:  # Identity, Dropout: another's variable
                results[value][1].extend(labels)
            elif isinstance(value, relax.Var) and value not in inputs:
                entry = (node.name if single and node.name else name, list(labels))
                if (wide := self._in_float32.wide.get(value)) is not None and wide not in inputs:
                    results.setdefault(wide, (entry[0], list(labels)))
                results[value] = entry
        self._mark(labels)

    def _mark(self, labels: list[str]) -> None:
        self.trace.segments[self.bb.emit(self._marker)] = labels

    def _bind(self, value: Any) -> Any:
        """Bind a computation to a variable; constants, shapes, numbers and sequences stay values."""
        if isinstance(value, (relax.Call, relax.TupleGetItem)) and not tvm.ir.is_prim_expr(value):
            return self.bb.emit(value)
        return value

    def _output(self, output: onnx.ValueInfoProto) -> relax.Var:
        """A variable of its own for an output: no other output's, no input, no constant, of the dtype stated."""
        var = tensor_of(output.name, self._nodes[output.name], self.trace, self._model)
        maker = self.trace.makers.get(output.name)
        labels = self.trace.results.get(var, ("", [maker] if maker else []))[1]
        wanted = dtype_name(output.type)
        if wanted and str(var.ty.dtype) != stored(wanted):
            var = self.bb.emit(relax.op.astype(var, stored(wanted)))
        elif var not in self.trace.results or var in self.trace.outputs:
            # a copy that no simplification can take for a no-op: the caller gets memory of its own
            var = self.bb.emit(self.bb.call_te(topi.identity, var, primfunc_name_hint="copy"))
        self.trace.results.setdefault(var, (output.name, list(labels)))
        self.trace.outputs.append(var)
        self._mark(labels)
        return var
