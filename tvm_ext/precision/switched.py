"""An ONNX model in which each operand of a product can be rounded to a narrow float, or not, from run to run.

    y = MatMul(x, W)   ->   y = MatMul(x + s0 * (h(x) - x), W + s1 * (h(W) - W))

h rounds as T. J. Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18
(1971), splits a number: with c = (2^16 + 1) x it is c - (c - x), the upper 8 of x's 24 bits; only of ties it may take
the odd one. It needs no conversion, which ONNX has for bfloat16 only since version 13. To float16, whose range is
smaller, h is a cast there and back. One session serves all runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

from ..frontend.checks.checker import Checked
from ..frontend.naming import node_labels
from ..ops import Kind, of

#: Name of the input that has the switches, and the beginning of all names that are added.
SWITCHES = "tvm_ext_precision"
_SPLIT = 65537.0
_Step = tuple[str, list[str], str]
"""(operator, inputs, what it makes)"""


@dataclass(frozen=True)
class Switched:
    """A model with switches.

    Attributes:
        proto: takes float32 switches, 0 or 1, as one more input, one for each of `values`.
        values: ONNX values that can be rounded.
        layers: label of each product -> those of the values that its being in bf16 rounds.
    """

    proto: onnx.ModelProto
    values: tuple[str, ...]
    layers: Mapping[str, tuple[str, ...]]

    def switches(self, lowered: Iterable[str]) -> list[float]:
        """The input that computes these products in bf16."""
        on = {value for label in lowered for value in self.layers[label]}
        return [float(value in on) for value in self.values]


def switched_model(checked: Checked, ir_version: int, dtype: str) -> Switched:
    """A checked model with a switch for each value that would be rounded.

    Args:
        ir_version: of the model that was checked.
        dtype: to round to: "bfloat16" or "float16".
    """
    graph = _Graph(checked, dtype)
    layers = {label: graph.rounded_by(node) for label, node in graph.products()}
    values = tuple(dict.fromkeys(value for rounded in layers.values() for value in rounded))
    return Switched(graph.with_switches(values, ir_version), values, layers)


class _Graph:
    def __init__(self, checked: Checked, dtype: str) -> None:
        self._checked, self._dtype = checked, dtype
        named = zip(checked.graph.node, node_labels(checked.graph.node), strict=True)
        self._labels = {tuple(node.output): label for node, label in named}
        self._outputs = {value.name for value in checked.graph.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in checked.nodes:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)
        self._free = {spec.name for spec in checked.inputs} | self._outputs
        self._multiplied = {name for node in checked.nodes if _is_product(node) for name in _operands(node)}
        self._free |= {name for name in self._multiplied if self._is_sensitive(name)}

    def products(self) -> list[tuple[str, onnx.NodeProto]]:
        """Label and node of each product of float32 operands."""
        nodes = [n for n in self._checked.nodes if _is_product(n) and all(map(self._is_float32, _operands(n)))]
        return [(self._labels[tuple(node.output)], node) for node in nodes]

    def rounded_by(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """Operands of a product, and what comes of its result, if nothing that reads this is sensitive."""
        end = self._end(node.output[0])
        kept = end in self._outputs or any(not of(reader.op_type).passes_rounding for reader in self._readers[end])
        return tuple(dict.fromkeys([*_operands(node), *([] if kept else [end])]))

    def _end(self, value: str) -> str:
        """The last value of the chain of elementwise operators that only this value starts."""
        while value not in self._outputs and len(readers := self._readers.get(value, [])) == 1:
            if not _is_gentle(readers[0]) or not readers[0].output[0]:
                break
            value = readers[0].output[0]
        return value

    def _is_sensitive(self, value: str) -> bool:
        """Whether a rounding would reach a sensitive operator, such as a normalization, with no product between."""
        level, seen = [value], {value}
        while level:
            for node in self._readers.get(level.pop(), []):
                if _is_product(node):
                    continue
                if not (row := of(node.op_type)).passes_rounding:
                    return True
                goes_on = set(node.output) if _is_gentle(node) or row.keeps_elements else set()
                level += sorted(goes_on - seen - (self._multiplied if _is_gentle(node) else set()))
                seen |= goes_on
        return False

    def _is_float32(self, value: str) -> bool:
        if value in self._checked.weights:
            return str(self._checked.weights[value].dtype) == "float32"
        known = self._checked.types.get(value)
        return known is not None and known.tensor_type.elem_type == onnx.TensorProto.FLOAT

    def with_switches(self, values: Iterable[str], ir_version: int) -> onnx.ModelProto:
        numbers = {value: i for i, value in enumerate(values)}
        rounding = _rounding if self._dtype == "bfloat16" else _cast
        known = {*self._checked.weights, *(spec.name for spec in self._checked.inputs)}
        nodes = [_constant("split", _SPLIT)]
        nodes += [n for v in numbers if v in known for n in rounding(v, numbers[v])]
        for node in self._checked.nodes:
            nodes.append(self._rewired(node, numbers))
            nodes += [n for v in node.output if v in numbers for n in rounding(v, numbers[v])]
        graph = self._checked.graph
        switches = helper.make_tensor_value_info(SWITCHES, onnx.TensorProto.FLOAT, [len(numbers)])
        switched = helper.make_graph(nodes, graph.name, [*graph.input, switches], graph.output, graph.initializer)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._checked.opsets.items()]
        return helper.make_model(switched, opset_imports=opsets, ir_version=ir_version)

    def _rewired(self, node: onnx.NodeProto, numbers: Mapping[str, int]) -> onnx.NodeProto:
        """A node that reads rounded values; of what stays float32 for others, products do only."""
        wanted = set(node.input) & set(numbers)
        if not _is_product(node):
            wanted -= self._free
        if not wanted:
            return node
        copy = type(node)()
        copy.CopyFrom(node)
        copy.input[:] = [_name(operand) if operand in wanted else operand for operand in node.input]
        return copy


def _operands(node: onnx.NodeProto) -> list[str]:
    return [node.input[i] for i in of(node.op_type).multiplied if i < len(node.input) and node.input[i]]


def _is_product(node: onnx.NodeProto) -> bool:
    return bool(of(node.op_type).multiplied) and node.domain in ("", "ai.onnx")


def _is_gentle(node: onnx.NodeProto) -> bool:
    """Whether it computes each element by itself, and passes a rounding on no larger than it is."""
    row = of(node.op_type)
    return row.kind is Kind.ELEMENTWISE and row.passes_rounding


def _name(value: str, step: str = "rounded") -> str:
    return f"{SWITCHES}/{step}/{value}"


def _constant(name: str, value: float) -> onnx.NodeProto:
    tensor = helper.make_tensor("", onnx.TensorProto.FLOAT, [], [value])
    return helper.make_node("Constant", [], [_name(name, "")], value=tensor)


def _cast(value: str, number: int) -> list[onnx.NodeProto]:
    """switch ? float32(float16(value)) : value; what is too large becomes infinite, which no sum takes back."""
    steps: tuple[_Step, ...] = (
        ("Constant", [], "number"),
        ("Gather", [SWITCHES, _name(value, "number")], "switch"),
        ("Cast", [_name(value, "switch")], "chosen"),
        ("Cast", [value], "narrow"),
        ("Cast", [_name(value, "narrow")], "wide"),
        ("Where", [_name(value, "chosen"), _name(value, "wide"), value], "rounded"),
    )
    kinds = {"chosen": onnx.TensorProto.BOOL, "narrow": onnx.TensorProto.FLOAT16, "wide": onnx.TensorProto.FLOAT}
    return _nodes(value, number, steps, kinds)


def _rounding(value: str, number: int) -> list[onnx.NodeProto]:
    """value + switch * (h(value) - value)"""
    steps: tuple[_Step, ...] = (
        ("Constant", [], "number"),
        ("Gather", [SWITCHES, _name(value, "number")], "switch"),
        ("Mul", [value, _name("split", "")], "scaled"),
        ("Sub", [_name(value, "scaled"), value], "lower"),
        ("Sub", [_name(value, "scaled"), _name(value, "lower")], "upper"),
        ("Sub", [_name(value, "upper"), value], "error"),
        ("Mul", [_name(value, "error"), _name(value, "switch")], "switched"),
        ("Add", [value, _name(value, "switched")], "rounded"),
    )
    return _nodes(value, number, steps, {})


def _nodes(value: str, number: int, steps: Iterable[_Step], kinds: Mapping[str, int]) -> list[onnx.NodeProto]:
    """Nodes of some steps; `kinds` are those that casts make."""
    index = helper.make_tensor("", onnx.TensorProto.INT64, [], [number])

    def attributes(op: str, step: str) -> dict[str, Any]:
        return {"Constant": {"value": index}, "Cast": {"to": kinds.get(step)}}.get(op, {})

    return [helper.make_node(op, inputs, [_name(value, step)], **attributes(op, step)) for op, inputs, step in steps]
