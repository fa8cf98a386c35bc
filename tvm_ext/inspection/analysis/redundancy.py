"""What is redundant in a graph: operators that do nothing or undo each other, equals, constants, what nobody reads."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx

from ...core.graph.relax_graph import dtype_of, shape_of
from ...frontend.known_values import value_of
from ...frontend.reading.walk import inner_graphs, value_names
from ...ops import Kind, of
from .result import Finding
from .survey import Survey

#: Nodes that hand on their first input whatever it is.
_NOTHING = ("Identity", "Dropout")


def redundancies(survey: Survey, action: Callable[[str], str]) -> tuple[Finding, ...]:
    """All findings, in the order of the nodes.

    Args:
        action: what the passes do about a node.
    """
    graph = _Graph(survey)
    findings = []
    for node, label in zip(survey.checked.nodes, survey.labels, strict=True):
        kind, detail = next(((kind, detail) for kind, detail in graph.findings(node) if detail), ("", ""))
        if kind:
            findings.append(Finding(label, node.op_type, kind, detail, action(label)))
    findings += [
        Finding(name, "", "unused", "an initializer that no node reads", "import: it is no part of the program")
        for name in survey.checked.weights
        if name not in graph.read
    ]
    return tuple(findings)


class _Graph:
    def __init__(self, survey: Survey) -> None:
        self._survey, self._values = survey, survey.trace.values
        self._maker = {name: node for node in survey.checked.nodes for name in node.output if name}
        self._outputs = {value.name for value in survey.checked.graph.output}
        reads = [name for node in survey.checked.nodes for name in (*node.input, *_inner(node, value_names)) if name]
        self.read = {*reads, *self._outputs}
        self._first: dict[Any, str] = {}
        self._same: dict[str, str] = {}
        self._hashes: dict[str, str] = {}
        self._needed = self._reachable()

    def findings(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        """(kind, detail) of everything that is redundant in a node; the first that has a detail counts."""
        needed = any(name in self._needed for name in node.output)
        yield "unused", "" if needed else "no output of the model needs it"
        yield "constant", self._constant(node)
        yield "identity", self._identity(node)
        yield "cancels", self._cancels(node)
        yield "duplicate", self._duplicate(node)

    def _reachable(self) -> set[str]:
        """Values that an output depends on."""
        needed, stack = set[str](), list(self._outputs)
        while stack:
            name = stack.pop()
            if name in needed:
                continue
            needed.add(name)
            if (node := self._maker.get(name)) is not None:
                stack += [value for value in (*node.input, *_inner(node, value_names)) if value]
        return needed

    def _constant(self, node: onnx.NodeProto) -> str:
        if node.op_type == "Constant":
            return ""
        known = [value_of(self._values.get(name)) is not None for name in node.output if name]
        if known and all(known):
            return "its value can be computed now"
        inputs = [name for name in node.input if name]
        if inputs and all(self._is_constant(name) for name in inputs):
            return "it reads constants only"
        return ""

    def _is_constant(self, name: str) -> bool:
        return name in self._survey.checked.weights or value_of(self._values.get(name)) is not None

    def _identity(self, node: onnx.NodeProto) -> str:
        operator = node.op_type
        if operator in _NOTHING and not self._training(node):
            return "hands on its input"
        inputs = [name for name in node.input if name]
        if not inputs or not self._same_type(inputs[0], node.output[0]):
            return ""
        if operator == "Transpose":
            perm = _ints(node, "perm")
            return "moves nothing" if perm is not None and perm == sorted(perm) else ""
        row = of(operator)
        single = row.shape_operands or len(inputs) == 1 or row.own_type
        if row.idle and single and not self._moves(node):
            return "its output is its input"
        if row.neutral is not None and len(inputs) == 2 and self._is_filled(inputs[1], row.neutral):
            return f"{operator} with {row.neutral:g}"
        return ""

    def _training(self, node: onnx.NodeProto) -> bool:
        mode = value_of(self._values.get(node.input[2])) if len(node.input) > 2 and node.input[2] else None
        return bool(mode is not None and np.any(mode))

    def _moves(self, node: onnx.NodeProto) -> bool:
        """Whether elements are elsewhere in an output of the same shape: turned round by a slice, shifted by pads."""
        if node.op_type == "Slice" and len(node.input) > 4 and node.input[4]:
            steps = value_of(self._values.get(node.input[4]))
            return steps is None or bool((steps < 0).any())
        if node.op_type != "Pad":
            return False
        pads = value_of(self._values.get(node.input[1])) if len(node.input) > 1 else _ints(node, "pads")
        return pads is None or bool(np.any(pads))

    def _same_type(self, first: str, other: str) -> bool:
        a, b = self._values.get(first), self._values.get(other)
        if any(getattr(value, "ty", None) is None for value in (a, b)):
            return False
        return shape_of(a) is not None and shape_of(a) == shape_of(b) and dtype_of(a) == dtype_of(b)

    def _is_filled(self, name: str, number: float) -> bool:
        value = value_of(self._values.get(name)) if self._is_constant(name) else None
        return value is not None and bool(value.size) and bool((value == number).all())

    def _cancels(self, node: onnx.NodeProto) -> str:
        before = self._maker.get(node.input[0]) if node.input else None
        if before is None:
            return ""
        pair = (before.op_type, node.op_type)
        if pair == ("Transpose", "Transpose"):
            first, second = _ints(before, "perm"), _ints(node, "perm")
            if first is not None and second is not None:
                both = [first[axis] for axis in second]
                return f"undoes {self._name(before)}" if both == sorted(both) else f"one with {self._name(before)}"
        if all(of(operator).kind is Kind.VIEW for operator in pair):
            undone = self._same_type(before.input[0], node.output[0])
            return f"undoes {self._name(before)}" if undone else f"one with {self._name(before)}"
        if pair[0] != pair[1]:
            return ""
        if of(node.op_type).involution:
            return f"undoes {self._name(before)}"
        return f"the same again as {self._name(before)}" if of(node.op_type).idempotent else ""

    def _name(self, node: onnx.NodeProto) -> str:
        return self._survey.trace.makers.get(node.output[0], node.op_type)

    def _duplicate(self, node: onnx.NodeProto) -> str:
        attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
        key = (node.domain, node.op_type, attributes, tuple(map(self._identity_of, node.input)), len(node.output))
        if of(node.op_type).random or node.op_type.startswith("Constant"):  # each its own numbers, or no work at all
            return ""
        first = self._first.setdefault(key, node.output[0])
        if first == node.output[0]:
            return ""
        for mine, other in zip(node.output, self._maker[first].output, strict=True):
            self._same[mine] = other
        return f"the same as {self._name(self._maker[first])}"

    def _identity_of(self, name: str) -> str:
        """What makes two operands equal: the value, or for initializers their bytes."""
        weight = self._survey.checked.weights.get(name)
        if weight is None:
            return self._same.get(name, name)
        if name not in self._hashes:
            data = np.ascontiguousarray(weight).reshape(-1).view(np.uint8)
            digest = hashlib.blake2b(data.data, digest_size=16).hexdigest()
            self._hashes[name] = f"{weight.dtype}{weight.shape}{digest}"
        return self._hashes[name]


def _inner(node: onnx.NodeProto, value_names: Callable[[Any], set[str]]) -> set[str]:
    """Values of the graphs inside a node: some are those of the graph around it."""
    return {name for graph in inner_graphs(node.attribute)
            for name in (*value_names(graph.node), *(value.name for value in graph.output))}  # fmt: skip


def _ints(node: onnx.NodeProto, name: str) -> list[int] | None:
    return next((list(attribute.ints) for attribute in node.attribute if attribute.name == name), None)
