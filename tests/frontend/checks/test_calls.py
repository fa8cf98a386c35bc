"""Functions that call themselves, or become more nodes than can be, are refused before anything is made of them."""

import pytest
from onnx import helper

from tvm_ext.core.errors import ModelError, UnsupportedError

from ..graphs import imported, message, model, node, value

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
