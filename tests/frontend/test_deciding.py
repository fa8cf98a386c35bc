"""Shapes that depend on values: refused where the first of them arises, with the inputs to freeze."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.ops import operators

from .graphs import check_numbers, imported, message, model, node, value

X = value("x", [4, 6])
ONE = {"zero": np.array(0), "one": np.array(1)}


def integers(name: str, *shape: int) -> onnx.ValueInfoProto:
    return value(name, list(shape), TensorProto.INT64)


DECIDING = {name: row.shape_operands for row in operators() for name in row.onnx if row.shape_operands}
#: Operator -> inputs of its node, further inputs of the model.
CASES: dict[str, tuple[list[str], list[onnx.ValueInfoProto]]] = {
    "CenterCropPad": (["x", "s"], [X, integers("s", 2)]),
    "ConstantOfShape": (["s"], [integers("s", 2)]),
    "Expand": (["x", "s"], [X, integers("s", 3)]),
    "OneHot": (["i", "d", "v"], [integers("i", 4), integers("d"), value("v", [2])]),
    "Pad": (["x", "p"], [X, integers("p", 4)]),
    "Range": (["zero", "k", "one"], [integers("k")]),
    "Reshape": (["x", "s"], [X, integers("s", 2)]),
    "Resize": (["x", "", "f"], [X, value("f", [2])]),
    "Slice": (["x", "b", "e"], [X, integers("b", 1), integers("e", 1)]),
    "Split": (["x", "s"], [X, integers("s", 1)]),
    "Squeeze": (["x", "a"], [value("x", [4, 1, 6]), integers("a", 1)]),
    "Tile": (["x", "r"], [X, integers("r", 2)]),
    "TopK": (["x", "k"], [X, integers("k", 1)]),
    "Unsqueeze": (["x", "a"], [X, integers("a", 1)]),
    **{op: (["x", "a"], [X, integers("a", 1)]) for op in DECIDING if op.startswith("Reduce")},
}
#: Of the last opset that has it.
GONE = {"Upsample"}


def refused(proto: onnx.ModelProto, **options: Any) -> str:
    with pytest.raises(UnsupportedError) as error:
        imported(proto, **options)
    return message(error.value)


def test_every_operator_has_a_case():
    assert set(CASES) == set(DECIDING) - GONE


@pytest.mark.parametrize("op", CASES)
def test_an_input_that_decides_a_shape_is_named_with_what_to_freeze(op):
    arguments, inputs = CASES[op]
    outputs = ["y", "i_out"] if op == "TopK" else ["y"]
    kind = TensorProto.INT64 if op == "Range" else TensorProto.FLOAT
    proto = model([node(op, arguments, outputs, "it")], inputs, [value("y", None, kind)], ONE, opset=18)
    text = refused(proto)
    assert f"node 'it' ({op}, opset 18)" in text and "must be known when it is compiled" in text
    deciding = [arguments[i] for i in DECIDING[op] if i < len(arguments) and arguments[i] not in ("", *ONE)]
    assert f"compile(freeze={{{', '.join(f'{name!r}: ...' for name in deciding)}}})" in text


def test_the_inputs_behind_a_computed_shape_are_named():
    nodes = [node("Add", ["s", "one"], ["t"], "more"), node("Reshape", ["x", "t"], ["y"], "fold")]
    proto = model(nodes, [X, integers("s", 2)], [value("y", [None, None])], ONE)
    text = refused(proto)
    assert "node 'fold'" in text and "'t' (shape)" in text and "freeze={'s': ...}" in text
    assert imported(proto, freeze={"s": np.array([2, 7])}).outputs[0].shape == (3, 8)


def test_a_shape_in_the_middle_is_refused_where_it_arises():
    """Further on it would be any pass's problem, whatever the shape of the output is."""
    nodes = [
        node("Slice", ["x", "b", "e"], ["cut"], "cut_it"), node("Relu", ["cut"], ["r"], "act"),
        node("ReduceSum", ["r"], ["y"], "sum_it", keepdims=0),
    ]  # fmt: skip
    proto = model(nodes, [X, integers("b", 1), integers("e", 1)], [value("y", [])])
    text = refused(proto)
    assert "node 'cut_it'" in text and "freeze={'b': ..., 'e': ...}" in text


def test_shapes_of_shapes_are_known():
    nodes = [node("Shape", ["x"], ["s"]), node("Reshape", ["z", "s"], ["y"], "fold")]
    proto = model(nodes, [X, value("z", [24])], [value("y", [4, 6])])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((4, 6)), "z": rng.standard_normal(24)}
    check_numbers(proto, {name: array.astype(np.float32) for name, array in feeds.items()})


@pytest.mark.parametrize(("op", "opset"), [("CumSum", 17), ("CumProd", 26)])
def test_an_axis_that_is_fed_is_named_though_no_shape_depends_on_it(op, opset):
    proto = model([node(op, ["x", "a"], ["y"], "along")], [X, integers("a")], [value("y", None)], opset=opset)
    with pytest.raises(UnsupportedError, match="'along'") as error:
        imported(proto)
    assert "'a': ..." in str(error.value.fix)
