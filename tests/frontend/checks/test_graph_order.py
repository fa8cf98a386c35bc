"""Graphs that do not hold together, and the order of nodes."""

import numpy as np
import pytest

from tvm_ext.core.errors import ModelError
from tvm_ext.frontend.checks.graph_order import check_names, sorted_nodes

from ..graphs import imported, message, model, node, run_tvm, value


def chain(*pairs):
    """Relu nodes named n0, n1, ... from value to value; x in, y out."""
    nodes = [node("Relu", [a], [b], f"n{i}") for i, (a, b) in enumerate(pairs)]
    return model(nodes, [value("x", [2])], [value("y", [2])])


def test_nodes_in_order_stay():
    graph = chain(("x", "a"), ("a", "y")).graph
    assert [n.name for n in sorted_nodes(graph, "m")] == ["n0", "n1"]


def test_nodes_out_of_order_are_sorted_reported_and_right():
    proto = chain(("b", "y"), ("a", "b"), ("x", "a"))
    assert [n.name for n in sorted_nodes(proto.graph, "m")] == ["n2", "n1", "n0"]
    translated = imported(proto)
    assert "sorted" in translated.warnings[0]
    assert [n.name for n in proto.graph.node] == ["n0", "n1", "n2"]  # the caller's is left as it is
    np.testing.assert_array_equal(run_tvm(translated, {"x": np.array([-1, 1], np.float32)})[0], [0, 1])


def test_only_what_must_move_moves():
    proto = chain(("x", "a"), ("c", "d"), ("x", "b"), ("a", "c"), ("d", "y"))
    assert [n.name for n in sorted_nodes(proto.graph, "m")] == ["n0", "n2", "n3", "n1", "n4"]


def test_a_cycle_names_its_nodes_and_only_those():
    proto = chain(("x", "y"), ("c", "a"), ("a", "b"), ("b", "c"), ("c", "d"))
    with pytest.raises(ModelError) as error:
        imported(proto)
    text = message(error.value)
    assert "small" in text and "cycle" in text
    assert all(f"n{i}" in text for i in (1, 2, 3)) and "n0" not in text and "n4" not in text
    assert "n1 -> n2 -> n3 -> n1" in text or "n2 -> n3 -> n1 -> n2" in text or "n3 -> n1 -> n2 -> n3" in text


def if_model(read: str):
    """y = x if flag else relu(x)."""
    from onnx import TensorProto, helper

    then = helper.make_graph([node("Identity", [read], ["t"], "then")], "then", [], [value("t", [2])])
    other = helper.make_graph([node("Relu", ["x"], ["e"], "else")], "else", [], [value("e", [2])])
    nodes = [node("If", ["flag"], ["y"], "choose", then_branch=then, else_branch=other)]
    return model(nodes, [value("x", [2]), value("flag", [], TensorProto.BOOL)], [value("y", [2])])


LONG = [f"v{i}" for i in range(50)]
TWICE = model([node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])], {"w": np.ones(2, np.float32)})
TWICE.graph.initializer.append(TWICE.graph.initializer[0])


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (chain(("y", "y")), "cycle: n0 -> n0"),
        (chain(("x", "y"), *zip(LONG, LONG[1:] + LONG[:1], strict=True)), r"\(\d+ more\)"),
        (chain(("x", "a"), ("ghost", "y")), "node 'n1' reads 'ghost'"),
        (if_model("ghost"), "node 'choose' reads 'ghost'"),
        (chain(("x", "a")), "no node makes output 'y'"),
        (TWICE, "'w' is made by an initializer twice"),
    ],
    ids=[
        "a node that reads itself", "a long cycle", "a value nothing makes", "in a branch", "no output",
        "two weights",
    ],
)  # fmt: skip
def test_what_does_not_hold_together_names_node_and_value(proto, text):
    with pytest.raises(ModelError, match=text) as error:
        imported(proto)
    assert message(error.value)


def test_a_branch_waits_for_what_it_reads():
    proto = if_model("late")
    proto.graph.node.append(node("Relu", ["x"], ["late"], "late"))
    assert [n.name for n in sorted_nodes(proto.graph, "m")] == ["late", "choose"]


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (chain(("x", "y"), ("x", "y")), ["'y'", "'n0'", "'n1'"]),
        (chain(("x", "x"), ("x", "y")), ["'x'", "an input", "'n0'"]),
        (model([node("Split", ["x"], ["y", "y"], "twins")], [value("x", [2])], []), ["'twins'", "twice"]),
        (model([], [value("x", [2]), value("x", [2])], [value("x", [2])]), ["'x'", "an input twice"]),
    ],
)
def test_a_value_made_twice_names_both_makers(proto, words):
    with pytest.raises(ModelError) as error:
        check_names(proto.graph, "m")
    assert all(word in message(error.value) for word in words)


def test_an_initializer_may_be_listed_as_input_as_old_models_do():
    proto = model(
        [node("Add", ["x", "w"], ["y"])], [value("x", [2]), value("w", [2])], [value("y", [2])],
        {"w": np.ones(2, np.float32)},
    )  # fmt: skip
    translated = imported(proto)
    assert [spec.name for spec in translated.inputs] == ["x"]
