"""Labels and identifiers."""

import keyword

import pytest

from tvm_ext.frontend.naming import Names, identifier, node_labels

from .graphs import node


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layer1.0.conv1", "layer1_0_conv1"), ("/layer1/Conv", "layer1_Conv"), ("a::b", "a_b"), ("0", "v_0"),
        ("for", "v_for"), ("", "v"), ("äöü", "v"), ("x", "x"), ("conv1_output", "conv1_output"),
    ],
)  # fmt: skip
def test_identifiers(name, expected):
    assert identifier(name) == expected
    assert expected.isidentifier() and not keyword.iskeyword(expected)


def test_names_are_given_once():
    names = Names()
    assert [names.fresh(n) for n in ("a", "a", "a_1", "a", "b")] == ["a", "a_1", "a_1_1", "a_2", "b"]


def test_labels_of_unnamed_and_equally_named_nodes_differ():
    nodes = [node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["b"], "r"), node("Relu", ["b"], ["c"], "r")]
    assert node_labels(nodes) == ["Relu:a", "r:b", "r:c"]
