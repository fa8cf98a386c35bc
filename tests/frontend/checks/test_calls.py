"""Functions that call themselves, or become more nodes than can be, are refused before anything is made of them."""

import numpy as np
import pytest
from onnx import helper

from tvm_ext.core.errors import ModelError, UnsupportedError

from ..graphs import check_numbers, imported, message, model, node, run_tvm, value

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def calling(*bodies):
    """y = f0(x), where f<i> calls what bodies[i] names, one after the other."""
    proto = model([node("f0", ["x"], ["y"], "call", domain="own")], [value("x", [2])], [value("y", [2])])
    proto.opset_import.append(OPSETS[1])
    for number, names in enumerate(bodies):
        nodes = [
            helper.make_node(name, [f"v{i}"], [f"v{i + 1}"], domain="" if name == "Neg" else "own")
            for i, name in enumerate(names)
        ]
        proto.functions.append(helper.make_function("own", f"f{number}", ["v0"], [f"v{len(names)}"], nodes, OPSETS))
    return proto


def test_functions_within_functions_are_inlined():
    translated = imported(calling(["f1", "f1"], ["Neg", "Neg"]))
    assert translated.outputs[0].shape == (2,)


@pytest.mark.parametrize("bodies", [[["f0"]], [["f1"], ["f2"], ["f0"]]])
def test_circles_are_named(bodies):
    with pytest.raises(ModelError, match="functions call each other in a circle: f0") as error:
        imported(calling(*bodies))
    assert message(error.value)


@pytest.mark.parametrize(
    ("calls", "depth", "wrong"), [(2, 30, "more than 100000 nodes"), (1, 150, "more than 100 deep")]
)
def test_what_doubles_thirty_times_or_is_too_deep_is_refused(calls, depth, wrong):
    with pytest.raises(UnsupportedError, match=wrong) as error:
        imported(calling(*([f"f{i + 1}"] * calls for i in range(depth)), ["Neg"]))
    assert message(error.value)


def leaking(opset, **attributes):
    """y = leak(x) of a function whose slope has a default, written in an opset of its own."""
    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    inner.attribute.add(name="alpha", ref_attr_name="slope", type=helper.make_attribute("alpha", 0.5).type)
    imports, default = [helper.make_opsetid("", opset)], helper.make_attribute("slope", 0.25)
    leak = helper.make_function("own", "leak", ["a"], ["b"], [inner], imports, attribute_protos=[default])
    outer = helper.make_function(
        "own", "outer", ["a"], ["b"], [node("leak", ["a"], ["b"], domain="own")], [*imports, OPSETS[1]]
    )
    call = node("outer" if not attributes else "leak", ["x"], ["y"], "call", domain="own", **attributes)
    proto = model([call], [value("x", [4])], [value("y", [4])], domains=["own"])
    proto.functions.extend([leak, outer])
    return proto


@pytest.mark.parametrize("opset", [16, 17, 18])
@pytest.mark.parametrize("attributes", [{}, {"slope": 0.75}])
def test_functions_have_their_defaults_whatever_opset_they_state(opset, attributes):
    check_numbers(leaking(opset, **attributes), {"x": np.array([-2, -1, 0, 3], np.float32)})


def test_a_call_in_a_branch_has_the_default_too():
    proto = leaking(17)
    branches = {
        name: helper.make_graph([node("leak", ["x"], [name], domain="own")], name, [], [value(name, [4])])
        for name in ("then_branch", "else_branch")
    }
    proto.graph.node[0].CopyFrom(node("If", ["c"], ["y"], "if", **branches))
    proto.graph.input.append(value("c", [], 9))
    check_numbers(proto, {"x": np.array([-2, -1, 0, 3], np.float32), "c": np.array(True)})


def test_domains_that_functions_alone_import_are_those_of_the_model():
    proto = calling(["square"])
    product = node("FusedMatMul", ["a", "a"], ["b"], domain="com.microsoft", alpha=0.5)
    imports = [helper.make_opsetid("com.microsoft", 1)]
    proto.functions.append(helper.make_function("own", "square", ["a"], ["b"], [product], imports))
    for value_info in (*proto.graph.input, *proto.graph.output):
        value_info.CopyFrom(value(value_info.name, [3, 3]))
    x = np.random.default_rng(0).standard_normal((3, 3), dtype=np.float32)
    (outputs,) = run_tvm(imported(proto), {"x": x})
    np.testing.assert_allclose(outputs, 0.5 * x @ x, rtol=1e-5, atol=1e-6)


def test_an_operator_that_another_opset_has_otherwise_is_named():
    proto = leaking(12)
    with pytest.raises(UnsupportedError, match="function 'leak' is written in opset 12") as error:
        imported(proto)
    assert "'LeakyRelu'" in message(error.value)
