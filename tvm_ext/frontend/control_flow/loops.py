"""Loop and Scan: every step of a short one stands in the graph; a long one stays a loop (see :mod:`.rolled`).

    s, z = Scan(s0, x; s, x_t -> f(s, x_t), g(s, x_t))
    ->  s1 = f(s0, x[0]); z0 = g(s0, x[0]); s2 = f(s1, x[1]); z1 = g(s1, x[1]); ...; z = concat(z0, z1, ...)

A Loop ends where its condition is known to be false, as one computed of counters and shapes is while it is unrolled.
From the step on where the condition is computed, states are kept by a mask, for as many steps as there may be:

    s = Loop(n, go, s0; s -> c(s), f(s))   ->   s1 = f(s0); go1 = c(s1); s2 = where(go1, f(s1), s1); ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...core.errors import TvmExtError
from ...core.graph.relax_graph import shape_of
from ..checks.refusal import Refusal, TooLong
from ..naming import node_label
from ..reading.walk import attribute
from .branches import selected
from .rolled import roll
from .step_counts import passes_on, steps_of
from .subgraph import Graph, constant_of, run_body

#: Nodes that one loop may become: of one that could stay a loop, and of one that could not.
UNROLLED, LIMIT = 256, 20_000
#: Axes of Unsqueeze are an input from this version on.
_AXES_ARE_INPUTS = 13
#: Before this version Scan runs over a batch.
_NO_BATCH = 9


def convert_loop(node: onnx.NodeProto, graph: Graph) -> None:
    """Convert a Loop and bind its outputs.

    Raises:
        Refusal: what is collected has a size that is known at run time only, or what is carried has one in each step,
            and the steps are not known to be few.
    """
    _convert(node, graph, _unroll_loop)


def convert_scan(node: onnx.NodeProto, graph: Graph) -> None:
    """Convert a Scan and bind its outputs.

    Raises:
        Refusal: the length is known at run time only, or what is carried has a shape of its own in each step, and there
            are too many steps.
    """
    _convert(node, graph, _unroll_scan)


def _convert(node: onnx.NodeProto, graph: Graph, unroll: Callable[[onnx.NodeProto, Graph, int], None]) -> None:
    before = graph.inner
    if not _stays(node, graph, _is_long(node, graph)):
        try:
            return unroll(node, graph, UNROLLED)
        except TooLong:
            graph.inner = before  # nothing reads what there is of them
    try:
        return roll(node, graph)
    except (Refusal, TvmExtError) as error:
        reason = error
    graph.inner = before
    try:
        unroll(node, graph, LIMIT)
    except TooLong as error:
        if isinstance(reason, TvmExtError):
            raise reason from error
        wrong = f"{error}; it cannot stay a loop: {reason}"
        raise Refusal(wrong, fix=error.fix, freeze=error.freeze, unknown=error.unknown) from reason


def _stays(node: onnx.NodeProto, graph: Graph, long: bool) -> bool:
    """Whether a loop is not unrolled: it is long, or has as many steps as the sizes say of a model that is imported at
    several."""
    if not graph.sized:
        return long
    if graph.most("the loop stays", int(long)):
        return True
    try:
        count = steps_of(node, graph) if node.op_type == "Loop" else _scan_steps(node, graph)
    except Refusal:
        return long
    count = -1 if count is None else count
    differs = graph.most("most steps", count) + graph.most("least steps", -count)
    return bool(graph.most("the loop stays", int(differs > 0)))


def _scan_steps(node: onnx.NodeProto, graph: Graph) -> int:
    first = node.input[-int(attribute(node, "num_scan_inputs"))]
    default = 0 if graph.opset >= _NO_BATCH else 1
    return _length(graph, first, [*attribute(node, "scan_input_axes", []), default][0])


def _is_long(node: onnx.NodeProto, graph: Graph) -> bool:
    """Whether the condition of a Loop, which looks at counters or shapes, tells that it becomes too many nodes."""
    body = attribute(node, "body")
    if node.op_type == "Scan" or passes_on(body):
        return False
    count = steps_of(node, graph)
    return count is not None and count * max(len(body.node), 1) > UNROLLED


def _unroll_loop(node: onnx.NodeProto, graph: Graph, limit: int) -> None:
    steps = _Steps(node, graph, limit)
    trips = _number(node, graph)
    if passes_on(steps.body):
        steps.check_count(trips)
    states, collected = list(node.input[2:]), steps.collectors(len(node.input) - 1)
    going: bool | str = node.input[1] if len(node.input) > 1 and node.input[1] else True
    number = 0
    while number < trips:
        if isinstance(going, str) and (now := graph.known(going)) is not None:
            going = bool(now.all())
        if not going:
            break
        if isinstance(going, str):
            steps.check_masked(trips, states)
        first = [steps.constant(np.int64(number)), steps.constant(np.array(True)), *states]
        wanted, *results = steps.run(first)
        new, extra = results[: len(states)], results[len(states) :]
        if isinstance(going, str):
            states = steps.masked(going, new, states)
            last = graph.known(wanted)
            going = steps.add("And", [going, wanted]) if last is None or last.all() else False
        else:
            states, going = new, wanted
        for values, value in zip(collected, extra, strict=True):
            values.append(value)
        number += 1
    steps.finish(states, collected, [0] * len(collected))


def _unroll_scan(node: onnx.NodeProto, graph: Graph, limit: int) -> None:
    steps = _Steps(node, graph, limit)
    scanned = int(attribute(node, "num_scan_inputs"))
    if graph.opset < _NO_BATCH:
        _convert_batch(node, graph, steps, scanned)
        return
    axes, backwards = (attribute(node, name, [0] * scanned) for name in ("scan_input_axes", "scan_input_directions"))
    sources = list(zip(node.input[-scanned:], axes, backwards, strict=True))
    states, collected = _scanned(graph, steps, list(node.input[:-scanned]), sources)
    directions = attribute(node, "scan_output_directions", [0] * len(collected))
    joined = [c[::-1] if back else c for c, back in zip(collected, directions, strict=True)]
    steps.finish(states, joined, attribute(node, "scan_output_axes", [0] * len(collected)))


def _scanned(
    graph: Graph, steps: _Steps, states: list[str], sources: Sequence[tuple[str, int, int]]
) -> tuple[list[str], list[list[str]]]:
    """All steps over sources (name, axis, whether backwards): the last states, and what each step adds."""
    count = _length(graph, sources[0][0], sources[0][1])
    steps.check_count(count)
    collected = steps.collectors(len(states))
    for number in range(count):
        slices = [
            steps.add("Gather", [source, steps.constant(np.int64(count - 1 - number if back else number))], axis=axis)
            for source, axis, back in sources
        ]
        results = steps.run([*states, *slices])
        states = results[: len(states)]
        for values, value in zip(collected, results[len(states) :], strict=True):
            values.append(value)
    return states, collected


def _convert_batch(node: onnx.NodeProto, graph: Graph, steps: _Steps, scanned: int) -> None:
    """The Scan of opset 8, over every element of a batch by itself; its first input may cut sequences short."""
    if node.input[0]:
        raise Refusal("lengths of its sequences", fix="export the model with opset 9 or later")
    states, sources = list(node.input[1:-scanned]), list(node.input[-scanned:])
    backwards = attribute(node, "directions", [0] * scanned)
    rows = steps.collectors(0)
    for number in range(_length(graph, sources[0], 0)):
        at = steps.constant(np.int64(number))
        first, slices = ([steps.add("Gather", [name, at], axis=0) for name in names] for names in (states, sources))
        last, collected = _scanned(graph, steps, first, list(zip(slices, [0] * scanned, backwards, strict=True)))
        for row, value in zip(rows, [*last, *(steps.joined(values, 0) for values in collected)], strict=True):
            row.append(value)
    steps.finish([], rows, [0] * len(rows))


def _number(node: onnx.NodeProto, graph: Graph) -> float:
    """The most steps a Loop takes; infinity if nothing but its condition ends it."""
    if not node.input[0]:
        return math.inf
    if (trips := graph.known(node.input[0])) is None:
        raise TooLong(f"how many steps it takes, {node.input[0]!r}, is computed", unknown=node.input[0])
    return int(trips.reshape(-1)[0])


def _length(graph: Graph, source: str, axis: int) -> int:
    shape = shape_of(graph.value(source))
    if shape is None or not -len(shape) <= axis < len(shape):
        raise Refusal(f"the length of {source!r} is known at run time only", unknown=source)
    return shape[axis]


class _Steps:
    """The steps of one node."""

    def __init__(self, node: onnx.NodeProto, graph: Graph, limit: int) -> None:
        self._node, self._graph, self._label, self._limit = node, graph, node_label(node), limit
        self.body: onnx.GraphProto = attribute(node, "body")
        self._converted = 0

    def collectors(self, first: int) -> list[list[str]]:
        """A list for each output of the body, from the first one on that is collected."""
        return [[] for _ in self.body.output[first:]]

    def check_count(self, count: float) -> None:
        """Whether so many steps can be compiled."""
        if count * max(len(self.body.node), 1) > self._limit:
            raise TooLong(f"its steps are more than {self._limit} nodes", fix="shorten it")

    def run(self, inputs: Sequence[str]) -> list[str]:
        """One step: the body's outputs."""
        self._converted += 1
        self.check_count(self._converted)
        return run_body(self._graph, self.body, inputs, self._label)

    def check_masked(self, trips: float, states: Sequence[str]) -> None:
        """Whether steps that may not happen can be compiled."""
        if any(left := self._node.output[len(states) :]):
            raise Refusal(f"its condition is computed, and {next(filter(None, left))!r} has an element for each step",
                          freeze=True)  # fmt: skip
        if math.isinf(trips) or trips * max(len(self.body.node), 1) > self._limit:
            wrong = "its condition is computed, and the number of steps has no bound that is small enough"
            raise TooLong(wrong, fix="give the Loop a small trip count M", freeze=True)

    def masked(self, going: str, new: Sequence[str], old: Sequence[str]) -> list[str]:
        """The states after a step that happens where `going` is true."""
        states, value = [], self._graph.value
        for a, b in zip(new, old, strict=True):
            states.append(self._graph.names.fresh(f"{self._label}/state"))
            self._graph.bind(states[-1], selected(value(going), value(a), value(b), f"state {b!r} by condition", going))
        return states

    def finish(self, states: Sequence[str], collected: Sequence[Sequence[str]], axes: Sequence[int]) -> None:
        """Bind the node's outputs."""
        outputs = list(self._node.output)
        for value, output in zip(states, outputs, strict=False):
            if output:
                self._graph.bind(output, self._graph.value(value))
        stated = self.body.output[len(self.body.output) - len(collected) :]
        for values, axis, output, each in zip(collected, axes, outputs[len(states) :], stated, strict=False):
            if output and values:
                self.joined(values, axis, output)
            elif output:
                self._graph.bind(output, _nothing(each, axis))

    def joined(self, values: Sequence[str], axis: int, output: str = "") -> str:
        """The name of values beside each other along a new axis."""
        return self.add("Concat", [self._unsqueezed(value, axis) for value in values], output, axis=axis)

    def _unsqueezed(self, value: str, axis: int) -> str:
        if self._graph.opset < _AXES_ARE_INPUTS:
            return self.add("Unsqueeze", [value], axes=[axis])
        return self.add("Unsqueeze", [value, self.constant(np.array([axis], np.int64))])

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = self._graph.names.fresh(f"{self._label}/constant")
        self._graph.bind(name, constant_of(np.asarray(value)))
        return name

    def add(self, op_type: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Convert one more node; the name of its output."""
        output = output or self._graph.names.fresh(f"{self._label}/{op_type}")
        self._graph.convert([helper.make_node(op_type, inputs, [output], self._label, **attributes)])
        return output


def _nothing(stated: onnx.ValueInfoProto, axis: int) -> Any:
    """What is collected in no step, in the shape that the body states for one element."""
    kind = stated.type.tensor_type
    dims = [int(d.dim_value) if d.HasField("dim_value") else 0 for d in kind.shape.dim]
    if not kind.HasField("shape") or not all(d.HasField("dim_value") for d in kind.shape.dim):
        raise Refusal(f"it takes no step, and the body does not state the shape of {stated.name!r}")
    at = axis % (len(dims) + 1)
    return constant_of(np.zeros([*dims[:at], 0, *dims[at:]], helper.tensor_dtype_to_np_dtype(kind.elem_type)))
