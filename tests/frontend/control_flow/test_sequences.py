"""Sequences and optionals exist while a model is converted only."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.relax_graph import main_bindings, op_name

from ..graphs import check_numbers, imported, message, model, node, value

INT, BOOL = TensorProto.INT64, TensorProto.BOOL
X = np.arange(35, dtype=np.float32).reshape(7, 5)


def check(nodes: list[Any], outputs: list[Any], weights: dict[str, np.ndarray] | None = None, opset: int = 18) -> Any:
    return check_numbers(model(nodes, [value("x", [7, 5])], outputs, weights, opset), {"x": X})


def test_what_goes_in_comes_out_and_nothing_else_is_left() -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["b"]), node("SequenceConstruct", ["a", "b"], ["s"]),
             node("SequenceInsert", ["s", "x", "one"], ["t"]), node("SequenceErase", ["t", "zero"], ["u"]),
             node("Identity", ["u"], ["v"]), node("SequenceAt", ["v", "zero"], ["p"]),
             node("SequenceAt", ["v", "minus"], ["q"]), node("Sub", ["p", "q"], ["y"])]  # fmt: skip
    weights = {"zero": np.array(0), "one": np.array(1), "minus": np.array(-1)}
    outputs = check(nodes, [value("y", [7, 5])], weights)
    assert {op_name(b.value) for b in main_bindings(outputs.mod)} == {"relax.negative", "relax.abs", "relax.subtract"}


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("split", ["ones", "ones without an axis", "threes", "sizes"])
def test_split_and_join(axis: int, split: str) -> None:
    keep = int(split != "ones without an axis")
    inputs = {"threes": np.array(3), "sizes": np.array([3, 1, 3] if axis == 0 else [2, 3])}
    weights = {"split": inputs[split]} if split in inputs else {}
    nodes = [node("SplitToSequence", ["x", *weights], ["s"], axis=axis, keepdims=keep),
             node("SequenceAt", ["s", "one"], ["p"]), node("SequenceLength", ["s"], ["n"]),
             node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=1 - keep)]  # fmt: skip
    check(nodes, [value("p", None), value("n", [], INT), value("y", [7, 5])], weights | {"one": np.array(1)})


@pytest.mark.parametrize("there", [True, False])
def test_optionals(there: bool) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [7, 5])
    optional = node("Optional", ["x"], ["o"]) if there else node("Optional", [], ["o"], type=kind)
    then = (
        [node("OptionalGetElement", ["o"], ["e"]), node("Neg", ["e"], ["r"])] if there else [node("Neg", ["x"], ["r"])]
    )
    graphs = {
        "then_branch": helper.make_graph(then, "then", [], [value("r", None)]),
        "else_branch": helper.make_graph([node("Exp", ["x"], ["r"])], "else", [], [value("r", None)]),
    }
    nodes = [optional, node("OptionalHasElement", ["o"], ["has"]), node("If", ["has"], ["y"], **graphs)]
    check(nodes, [value("y", [7, 5]), value("has", [], BOOL)])


def test_a_sequence_map_is_unrolled() -> None:
    body = helper.make_graph([node("Exp", ["e"], ["f"])], "body", [value("e", None)], [value("f", None)])
    nodes = [node("SplitToSequence", ["x"], ["s"]), node("SequenceMap", ["s"], ["t"], body=body),
             node("ConcatFromSequence", ["t"], ["y"], axis=0)]  # fmt: skip
    check(nodes, [value("y", [7, 5])])


def test_sequences_that_a_condition_chooses() -> None:
    def branch(operator: str) -> Any:
        nodes = [node(operator, ["x"], ["a"]), node("SequenceConstruct", ["a", "x"], ["s"])]
        return helper.make_graph(nodes, operator, [], [helper.make_tensor_sequence_value_info("s", 1, None)])

    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "limit"], ["flag"]),
             node("If", ["flag"], ["s"], then_branch=branch("Neg"), else_branch=branch("Exp")),
             node("SequenceAt", ["s", "zero"], ["y"])]  # fmt: skip
    check(nodes, [value("y", [7, 5])], {"zero": np.array(0), "limit": np.float32(5)})


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "i"], ["y"], "at")],
         ("'at'", "'i' is computed", "freeze={'i': ...}")),
        ([node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "five"], ["y"], "at")],
         ("'at'", "position 5 lies outside")),
        ([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], "join", axis=0)],
         ("'join'", "empty sequence")),
        ([node("SplitToSequence", ["x", "i"], ["s"], "cut"), node("SequenceAt", ["s", "five"], ["y"])],
         ("'cut'", "'i' is computed")),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(nodes: list[Any], words: tuple[str, ...]) -> None:
    proto = model(nodes, [value("x", [7, 5]), value("i", [], INT)], [value("y", None)], {"five": np.array(5)}, 18)
    with pytest.raises(UnsupportedError) as info:
        imported(proto)
    assert all(word in message(info.value) for word in words), str(info.value)
