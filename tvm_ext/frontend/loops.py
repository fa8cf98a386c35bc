"""Scan and Loop with a known number of steps: their bodies stand in the graph, once for each step.

s, z = Scan(s0, x; s, x_t -> f(s, x_t), g(s, x_t))
->  s1 = f(s0, x[0]); z0 = g(s0, x[0]); s2 = f(s1, x[1]); z1 = g(s1, x[1]); ...; z = concat(z0, z1, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .copies import Copies
from .naming import Names, node_label

if TYPE_CHECKING:
    import onnx

LOOPS = ("Loop", "Scan")
#: Nodes that a loop may become.
_LIMIT = 20_000
#: Axes of Unsqueeze are an input from this version on.
_AXES_ARE_INPUTS = 13

Known = Callable[[str], "np.ndarray | None"]
"""Value -> what it is, if that is known."""


def unrolled(
    node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto], known: Known, names: Names
) -> list[onnx.NodeProto] | None:
    """The nodes of all steps; None if the number of steps is not known, 0, or too large."""
    if node.domain not in ("", "ai.onnx") or (node.op_type == "Scan" and opset < 9):
        return None
    given = {a.name: a for a in node.attribute}
    body = given["body"].g
    loop = _Unrolling(node, body, opset, names)
    if node.op_type == "Loop":
        count = _trip_count(node, body, known)
        return None if not 0 < count * max(len(body.node), 1) <= _LIMIT else loop.of_loop(count)
    scanned = int(given["num_scan_inputs"].i)
    axes = _ints(given, "scan_input_axes", scanned)
    count = _length(types.get(node.input[len(node.input) - scanned]), axes[0])
    return None if not 0 < count * max(len(body.node), 1) <= _LIMIT else loop.of_scan(count, scanned, given, axes)


def _ints(given: Mapping[str, onnx.AttributeProto], name: str, count: int) -> list[int]:
    return list(given[name].ints) if name in given else [0] * count


def _length(kind: onnx.TypeProto | None, axis: int) -> int:
    """Extent of a dimension; 0 if it is not known."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return 0
    dims = kind.tensor_type.shape.dim
    return int(dims[axis].dim_value) if -len(dims) <= axis < len(dims) else 0


def _trip_count(node: onnx.NodeProto, body: onnx.GraphProto, known: Known) -> int:
    """How often a Loop runs; 0 if that depends on what it computes."""
    trips = known(node.input[0]) if node.input[0] else None
    first = known(node.input[1]) if len(node.input) > 1 and node.input[1] else np.array(True)
    if trips is None or first is None or not first.all() or not _goes_on(body):
        return 0
    return int(trips.reshape(-1)[0])


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the body's condition is always the one it was given, or true."""
    name, makers = body.output[0].name, {output: node for node in body.node for output in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    constants = {t.name: t for t in body.initializer}
    if name in makers and makers[name].op_type == "Constant":
        constants.update((name, a.t) for a in makers[name].attribute if a.name == "value")
    if name not in constants:
        return False
    from onnx import numpy_helper

    return bool(numpy_helper.to_array(constants[name]).all())


class _Unrolling:
    def __init__(self, node: onnx.NodeProto, body: onnx.GraphProto, opset: int, names: Names) -> None:
        self._node, self._body, self._opset, self._names = node, body, opset, names
        self._label = node_label(node)
        self._made: list[onnx.NodeProto] = []
        local = {name for inner in body.node for name in inner.output}
        self._local = local | {value.name for value in (*body.input, *body.initializer)}
        self._constants = {t.name: self._constant(t) for t in body.initializer}

    def of_scan(
        self, count: int, scanned: int, given: Mapping[str, onnx.AttributeProto], axes: Sequence[int]
    ) -> list[onnx.NodeProto]:
        """Steps over slices of the last `scanned` inputs."""
        states = list(self._node.input[: len(self._node.input) - scanned])
        sources = list(self._node.input[len(states) :])
        backwards = _ints(given, "scan_input_directions", scanned)
        outputs = len(self._body.output) - len(states)
        collected: list[list[str]] = [[] for _ in range(outputs)]
        for step in range(count):
            slices = [
                self._slice(source, axis, count - 1 - step if back else step)
                for source, axis, back in zip(sources, axes, backwards, strict=True)
            ]
            states, extra = self._step([*states, *slices], len(states))
            for found, value in zip(collected, extra, strict=True):
                found.append(value)
        directions = _ints(given, "scan_output_directions", outputs)
        joined = [c[::-1] if back else c for c, back in zip(collected, directions, strict=True)]
        return self._finish(states, joined, _ints(given, "scan_output_axes", outputs))

    def of_loop(self, count: int) -> list[onnx.NodeProto]:
        """Steps with a number and a condition that stays true."""
        states = list(self._node.input[2:])
        collected: list[list[str]] = [[] for _ in range(len(self._body.output) - 1 - len(states))]
        for step in range(count):
            number, true = self._value(np.int64(step)), self._value(np.array(True))
            results, extra = self._step([number, true, *states], len(states) + 1)
            states = results[1:]
            for found, value in zip(collected, extra, strict=True):
                found.append(value)
        return self._finish(states, collected, [0] * len(collected))

    def _step(self, inputs: Sequence[str], states: int) -> tuple[list[str], list[str]]:
        """One copy of the body; its states, and what it adds to what is collected."""
        renamed = dict(zip((value.name for value in self._body.input), inputs, strict=True))
        copies = Copies(self._label, self._names, {**self._constants, **renamed}, self._local)
        self._made += copies.nodes(self._body.node)
        results = [copies.name(value.name) for value in self._body.output]
        return results[:states], results[states:]

    def _finish(self, states: Sequence[str], collected: list[list[str]], axes: Sequence[int]) -> list[onnx.NodeProto]:
        outputs = list(self._node.output)
        for value, output in zip(states, outputs, strict=False):
            if output:
                self._add("Identity", [value], output)
        for values, axis, output in zip(collected, axes, outputs[len(states) :], strict=False):
            if output:
                self._add("Concat", [self._unsqueezed(value, axis) for value in values], output, axis=axis)
        return self._made

    def _slice(self, source: str, axis: int, at: int) -> str:
        return self._add("Gather", [source, self._value(np.int64(at))], axis=axis)

    def _unsqueezed(self, value: str, axis: int) -> str:
        if self._opset < _AXES_ARE_INPUTS:
            return self._add("Unsqueeze", [value], axes=[axis])
        return self._add("Unsqueeze", [value, self._value(np.array([axis], np.int64))])

    def _value(self, value: Any) -> str:
        from onnx import numpy_helper

        return self._constant(numpy_helper.from_array(np.asarray(value)))

    def _constant(self, tensor: onnx.TensorProto) -> str:
        return self._add("Constant", [], value=tensor)

    def _add(self, op_type: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = output or self._names.fresh(f"{self._label}/{op_type}")
        self._made.append(helper.make_node(op_type, inputs, [output], self._label, **attributes))
        return output
