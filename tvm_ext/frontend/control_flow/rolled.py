"""A Loop or Scan that stays one: its body becomes a function, which one kernel calls again and again.

    s, z = Loop(n, c, s0; i, c, s -> c(s), f(s, w), g(s, w))
    ->  s, z = call_tir(loop, (program, n, c, s0, w));  body: (i, c, s, w) -> (c(s), f(s, w), g(s, w))

What a step hands to the next has one shape, and what it collects has as many elements as there are steps, so their
number must be known where something is collected. See :mod:`tvm_ext.runtime.control_flow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...core.graph.relax_graph import numpy_of
from ...runtime import control_flow
from ...runtime.spec import TensorSpec
from ..checks.graph_order import reads_of
from ..checks.inference import static_type
from ..checks.refusal import Refusal
from ..fallback.node import Type, emit_call
from ..naming import identifier, node_label
from ..reading.narrow import NARROW
from ..reading.walk import attribute, opset_imports
from .sequences import describe
from .step_counts import behind_identities, steps_of
from .subgraph import Graph, as_tensor, constant_of

if TYPE_CHECKING:
    from ..importer import Imported

#: Of a loop that only its condition ends.
_NO_LIMIT = np.iinfo(np.int64).max
#: Steps that a loop may be stated to take: more would run for minutes at best, and for ever at worst.
_MOST_STEPS = 10_000_000
#: Before this version Scan runs over a batch.
_NO_BATCH = 9


def roll(node: onnx.NodeProto, graph: Graph) -> None:
    """Convert a Loop or a Scan to a call of a region, and bind its outputs.

    Raises:
        Refusal: a state has another shape after a step than before it, or is no tensor; or something is collected in
            a number of steps that is not known.
        TvmExtError: its body cannot be converted; names the node in it.
    """
    _Rolled(node, graph).emit()


class _Rolled:
    """One node."""

    def __init__(self, node: onnx.NodeProto, graph: Graph) -> None:
        self._node, self._graph, self._scan = node, graph, node.op_type == "Scan"
        if self._scan and graph.opset < _NO_BATCH:
            raise Refusal("a Scan over a batch, as before opset 9, is compiled step by step")
        self._body: onnx.GraphProto = attribute(node, "body")
        scanned = int(attribute(node, "num_scan_inputs")) if self._scan else 0
        operands = list(node.input if self._scan else node.input[2:])
        self._total = len(operands) - scanned
        self._counted, self._heads = (0, 0) if self._scan else (1, 2)
        inside = [value.name for value in self._body.input]
        still = [at for at in range(self._total) if self._is_invariant(inside[self._heads + at], at)]
        self._at = [at for at in range(self._total) if at not in still]
        self._states, self._scanned = [operands[at] for at in self._at], operands[self._total :]
        self._names = [name for at, name in enumerate(inside) if at - self._heads not in still]
        self._outer = {name: name for name in list(reads_of(node))[sum(map(bool, node.input)) :]}
        self._outer |= {inside[self._heads + at]: operands[at] for at in still}
        self._handed_on = [(node.output[at], operands[at]) for at in still if node.output[at]]
        self._captured = [name for name, outer in self._outer.items() if self._constant(outer) is None]
        first = self._counted + self._total
        self._collects = [(at, name) for at, name in enumerate(node.output[self._total :], first) if name]

    def _is_invariant(self, name: str, at: int) -> bool:
        """Whether a step hands a state on as it gets it, as exporters do with weights: the loop captures it then."""
        return behind_identities(self._body, self._body.output[self._counted + at].name) == name

    def emit(self) -> None:
        """Import the body, emit the call, and bind the outputs."""
        for output, name in self._handed_on:
            self._graph.bind(output, self._graph.value(name))
        if not self._states and not self._collects:
            return  # nothing else comes out of it
        count, along = self._count(), self._along()
        name, body = self._graph.import_body(self._proto())
        self._check_states(body)
        collected = [self._with_steps(spec, axis, count) for spec, (axis, _) in
                     zip(body.outputs[self._counted + len(self._states) :], along[1], strict=True)]  # fmt: skip
        states = [(spec.sizes, spec.dtype) for spec in body.outputs[self._counted :][: len(self._states)]]
        program = control_flow.Loop(name, len(self._states), *along, counted=bool(self._counted))
        label = node_label(self._node)
        limit = constant_of(np.array(_NO_LIMIT if count is None else count, np.int64))
        inputs = [limit, constant_of(np.array(True))]
        if not self._scan:
            inputs = [self._graph.value(name) if name else default
                      for name, default in zip([*self._node.input[:2], ""], inputs, strict=False)]  # fmt: skip
        inputs += [self._graph.value(name) for name in (*self._states, *self._scanned)]
        inputs += [self._graph.value(self._outer[name]) for name in self._captured]
        results, region = emit_call(
            self._graph.names.fresh(identifier(label)), (control_flow.NAME, control_flow.__name__),
            control_flow.program_of(program), [as_tensor(x) for x in inputs], [*states, *collected],
            {label: (self._node.op_type, "its steps are calls of one function")}, {"body": name},
        )  # fmt: skip
        self._graph.regions.append(region)
        wanted = [*(self._node.output[at] for at in self._at), *(name for _, name in self._collects)]
        for output, result in zip(wanted, results, strict=True):
            if output:
                self._graph.bind(output, result)

    # ------------------------------------------------------------ steps
    def _count(self) -> int | None:
        """How many steps there are; None where that is known at run time only.

        Raises:
            Refusal: something is collected then; or there are more than a run could take.
        """
        if self._scan:
            axis = self._ints("scan_input_axes", len(self._scanned))[0]
            return self._type(self._scanned[0])[0][axis]
        if (count := steps_of(self._node, self._graph)) is not None:
            if count > _MOST_STEPS:
                raise Refusal(f"it takes {count} steps, more than the {_MOST_STEPS} that a loop may have")
            return count
        if self._collects:
            wrong = f"how many steps it takes is computed, and {self._collects[0][1]!r} has an element for each step"
            raise Refusal(wrong, freeze=True)
        return None

    def _along(self) -> tuple[tuple[tuple[int, bool], ...], tuple[tuple[int, bool], ...]]:
        """(axis, whether backwards) of all that is scanned, and of all that is collected."""
        first = self._counted + self._total
        count = len(self._body.output) - first
        axes, back = (self._ints(f"scan_output_{what}", count) for what in ("axes", "directions"))
        collected = tuple((axes[at - first], bool(back[at - first])) for at, _ in self._collects)
        axes, back = (self._ints(f"scan_input_{what}", len(self._scanned)) for what in ("axes", "directions"))
        return tuple(zip(axes, map(bool, back), strict=True)), collected

    def _ints(self, name: str, count: int) -> list[int]:
        return list(attribute(self._node, name, [0] * count))

    @staticmethod
    def _with_steps(spec: TensorSpec, axis: int, count: int | None) -> Type:
        at = axis % (len(spec.sizes) + 1)
        return (*spec.sizes[:at], count or 0, *spec.sizes[at:]), spec.dtype

    def _check_states(self, body: Imported) -> None:
        before, after = body.inputs[self._heads :], body.outputs[self._counted :]
        for name, old, new in zip(self._states, before, after, strict=False):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                raise Refusal(f"state {name!r} is {old} before a step and {new} after it", unknown=name)

    # ------------------------------------------------------------ the body as a model
    def _constant(self, name: str) -> np.ndarray | None:
        return numpy_of(as_tensor(self._graph.value(name)))

    def _type(self, name: str) -> Type:
        """Shape and dtype of a value of the graph.

        Raises:
            Refusal: it is no tensor of static shape, or of less than 8 bits.
        """
        kind = static_type(self._graph.type_of(name))
        if kind is None or kind[1] in NARROW:
            raise Refusal(f"{name!r}, which its steps read, is {describe(self._graph.value(name))}")
        return kind

    def _proto(self) -> onnx.ModelProto:
        """A model of one step, all shapes static."""
        kinds = [self._type(name) for name in self._states]
        for name, axis in zip(self._scanned, self._ints("scan_input_axes", len(self._scanned)), strict=True):
            shape, dtype = self._type(name)
            at = axis % len(shape)
            kinds.append(((*shape[:at], *shape[at + 1 :]), dtype))
        captured = [self._type(self._outer[name]) for name in self._captured]
        head = [] if self._scan else [((), "int64"), ((), "bool")]
        inputs = zip([*self._names, *self._captured], [*head, *kinds, *captured], strict=True)
        stated = self._body.output
        outputs = [helper.make_tensor_value_info(stated[0].name, TensorProto.BOOL, [])] * self._counted
        outputs += [_value(stated[self._counted + at].name, kind) for at, kind in zip(self._at, kinds, strict=False)]
        outputs += [stated[at] for at, _ in self._collects]
        constants = ((name, self._constant(outer)) for name, outer in self._outer.items())
        weights = [numpy_helper.from_array(array, name) for name, array in constants if array is not None]
        inside = helper.make_graph(
            self._body.node, self._body.name or "body", [_value(name, kind) for name, kind in inputs], outputs,
            [*self._body.initializer, *weights],
        )  # fmt: skip
        return helper.make_model(inside, opset_imports=opset_imports(self._graph.opsets), ir_version=8)


def _value(name: str, kind: Type) -> onnx.ValueInfoProto:
    """An input or output of these; of the shape that is stated where it is not."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind[1])), kind[0])
