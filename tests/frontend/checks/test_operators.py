"""Versions, domains and operators that can and cannot be imported."""

import types

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import ModelError, UnsupportedError
from tvm_ext.frontend.checks.operators import OLDEST_OPSET, _version_refusal

from ..graphs import check_numbers, imported, message, model, node, relu_model, value

X, Y = [value("x", [2, 3])], [value("y", [2, 3])]


def refused(proto, kind=UnsupportedError):
    with pytest.raises(kind) as error:
        imported(proto)
    return message(error.value)


def test_an_unknown_operator_names_node_operator_and_domain():
    text = refused(model([node("Frobnicate", ["x"], ["y"], "odd")], X, Y))
    assert all(word in text for word in ("'odd'", "'Frobnicate'", "ai.onnx", "does not exist"))


def test_a_custom_domain_is_named_even_if_the_operator_has_a_standard_name():
    text = refused(model([node("Relu", ["x"], ["y"], "mine", domain="my.ops")], X, Y, domains=["my.ops"]))
    assert all(word in text for word in ("'mine'", "'Relu'", "'my.ops'"))


def test_a_standard_operator_without_converter():
    text = refused(model([node("Multinomial", ["x"], ["y"], "draw")], [value("x", [3, 3])], [value("y", [])]))
    assert "'draw'" in text and "'Multinomial'" in text and "no converter" in text


def test_an_operator_inside_a_branch_is_named():
    inner = onnx.helper.make_graph([node("Frobnicate", ["x"], ["t"], "inner")], "b", [], [value("t", [2, 3])])
    nodes = [node("If", ["c"], ["y"], "if", then_branch=inner, else_branch=inner)]
    assert "'inner'" in refused(model(nodes, [*X, value("c", [], onnx.TensorProto.BOOL)], Y))


def test_all_unsupported_operators_are_listed_once_each_with_a_count():
    nodes = [node("A", ["x"], ["a"], "a1"), node("A", ["a"], ["b"], "a2"), node("B", ["b"], ["y"], "b1")]
    text = refused(model(nodes, X, Y))
    assert "'a1' and 1 more" in text and "'b1'" in text and "'a2'" not in text


def test_an_operator_of_a_later_opset_says_which():
    text = refused(model([node("Gelu", ["x"], ["y"], "gelu")], X, Y, opset=17), ModelError)
    assert "'gelu'" in text and "opset 20" in text and "17" in text


def test_an_operator_that_is_gone():
    text = refused(model([node("Upsample", ["x", "s"], ["y"], "up")], X, Y, {"s": np.ones(2, np.float32)}, opset=17))
    assert "'up'" in text and "gone in opset 17" in text


@pytest.mark.parametrize("opset", [0, 1000])
def test_an_opset_outside_the_range_says_which_range_works(opset):
    proto = relu_model()
    proto.opset_import[0].version = opset
    text = refused(proto)
    assert f"opset {opset}" in text and f"1 to {onnx.defs.onnx_opset_version()}" in text


@pytest.mark.parametrize(("operator", "opset", "since"), [("Relu", 5, 6), ("Add", 6, 7), ("Abs", 1, 6)])
def test_an_operator_that_changed_before_the_oldest_opset_says_since_when(operator, opset, since):
    proto = model([node(operator, ["x", "x"][: 1 + (operator == "Add")], ["y"], "old")], X, Y, opset=opset)
    text = refused(proto)
    assert "'old'" in text and f"opset {opset} differs from that of {since}" in text


def test_operators_that_are_the_same_before_the_oldest_opset_are_read():
    nodes = [node("Transpose", ["x"], ["t"]), node("Softmax", ["t"], ["y"])]
    check_numbers(model(nodes, X, [value("y", [3, 2])], opset=1), {"x": np.float32([[1, 2, 3], [3, 1, 0]])})


@pytest.mark.parametrize("opset", [6, OLDEST_OPSET, 9, 13, 17, 21, onnx.defs.onnx_opset_version()])
def test_opsets_inside_the_range_work(opset):
    proto = relu_model()
    proto.opset_import[0].version = opset
    assert imported(proto).outputs[0].shape == (2, 3)


def test_a_model_of_a_future_ir_version():
    proto = relu_model()
    proto.ir_version = onnx.IR_VERSION + 1
    text = refused(proto)
    assert str(onnx.IR_VERSION + 1) in text and "upgrade the onnx package" in text


def test_only_a_custom_opset_is_stated():
    proto = relu_model()
    proto.opset_import[0].domain = "my.ops"
    assert "no opset" in refused(proto, ModelError)


def test_a_model_of_another_domain_alone_names_its_node():
    proto = model([node("DictVectorizer", ["x"], ["y"], "bin", domain="ai.onnx.ml")], X, Y)
    proto.opset_import[0].domain = "ai.onnx.ml"
    proto.opset_import[0].version = 1
    text = refused(proto)
    assert all(word in text for word in ("'bin'", "'ai.onnx.ml'", "maps or on strings"))


def test_an_old_form_that_the_converter_would_read_wrongly_is_refused():
    mean = node("ReduceSum", ["x"], ["y"], "sum", axes=[1])
    assert imported(model([mean], X, [value("y", [2, 1])], opset=11)).outputs[0].shape == (2, 1)
    newer = types.SimpleNamespace(_impl_v10=None)
    cut = node("Slice", ["x"], ["y"], "cut", starts=[0], ends=[1])
    assert "opset 9 differs from that of opset 10" in _version_refusal(cut, 9, newer)


def test_an_old_form_that_means_the_same_is_imported():
    rng = np.random.default_rng(0)
    weights = {name: rng.random(3).astype(np.float32) for name in ("g", "b", "m", "v")}
    norm = node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], "bn")
    proto = model([norm], [value("x", [2, 3, 1, 2])], [value("y", [2, 3, 1, 2])], weights, opset=9)
    check_numbers(proto, {"x": rng.random((2, 3, 1, 2)).astype(np.float32)})


def test_what_onnx_withdrew_is_imported_within_branches_too():
    branches = {
        name: onnx.helper.make_graph(
            [node("GroupNormalization", ["x", "s", "s"], [name], num_groups=2)], name, [], [value(name, [1, 4, 3])]
        )
        for name in ("then_branch", "else_branch")
    }
    inputs = [value("x", [1, 4, 3]), value("c", [], onnx.TensorProto.BOOL)]
    weights = {"s": np.float32([1, 2])}
    proto = model([node("If", ["c"], ["y"], "if", **branches)], inputs, [value("y", [1, 4, 3])], weights, opset=18)
    x = np.random.default_rng(0).standard_normal((1, 4, 3)).astype(np.float32)
    check_numbers(proto, {"x": x, "c": np.array(True)})


def test_functions_of_the_model_are_inlined():
    body = [onnx.helper.make_node("Relu", ["a"], ["h"]), onnx.helper.make_node("Neg", ["h"], ["b"])]
    opset = onnx.helper.make_opsetid("", 17)
    function = onnx.helper.make_function("my.ops", "NegRelu", ["a"], ["b"], body, [opset])
    proto = model([node("NegRelu", ["x"], ["y"], "call", domain="my.ops")], X, Y, domains=["my.ops"])
    proto.functions.append(function)
    check_numbers(proto, {"x": np.array([[-1, 0, 1], [2, -3, 4]], np.float32)})
    assert len(proto.functions) == 1  # the caller's is left as it is
