"""Inputs that are sequences or optionals become tensors, and nodes that put them together."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_graphs import model, node, value
from tvm_ext.core.errors import ModelError, OptionError, TvmExtError, UnsupportedError
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend.reading.signature import read_with

TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 3])
SEQUENCE = helper.make_sequence_type_proto(TENSOR)
KINDS = {
    "seq": SEQUENCE, "opt": helper.make_optional_type_proto(TENSOR),
    "both": helper.make_optional_type_proto(SEQUENCE), "x": TENSOR,
}  # fmt: skip


def nested(kinds: dict[str, Any] = KINDS) -> onnx.ModelProto:
    """Takes what `kinds` says, and hands `seq` on; a branch reads `opt`."""
    branch = helper.make_graph([node("OptionalGetElement", "opt", "t")], "then", [], [value("t", None)])
    other = helper.make_graph([node("Neg", "x", "e")], "else", [], [value("e", None)])
    nodes = [node("OptionalHasElement", "opt", "has"), node("SequenceLength", "seq", "n"),
             node("If", "has", "y", then_branch=branch, else_branch=other)]  # fmt: skip
    proto = model(nodes, [], [value("y", None), value("n", [], TensorProto.INT64)], opset=18)
    proto.graph.input.extend(helper.make_value_info(name, kind) for name, kind in kinds.items())
    return proto


def read(shapes: dict[str, Any], **options: Any) -> Any:
    return read_with(nested(), CompileOptions(shapes=shapes, **options))


def test_each_tensor_is_an_input() -> None:
    proto = nested()
    before = proto.SerializeToString()
    shapes = {"seq": [(2, 3), (1, 3)], "opt": (4, 3), "both": [], "x": (2, 3)}
    source, options = read_with(proto, CompileOptions(shapes=shapes))
    assert proto.SerializeToString() == before
    graph = source.proto.graph
    assert [i.name for i in graph.input] == ["seq[0]", "seq[1]", "opt", "x"]
    assert all(i.type.HasField("tensor_type") for i in graph.input)
    assert dict(options.shapes) == {"seq[0]": (2, 3), "seq[1]": (1, 3), "opt": (4, 3), "x": (2, 3)}
    assert [(v.name, v.kind, v.type, v.tensors) for v in source.arguments] == [
        ("seq", "sequence", "seq(tensor(float))", ("seq[0]", "seq[1]")),
        ("opt", "tensor", "optional(tensor(float))", ("opt",)),
        ("both", "sequence", "optional(seq(tensor(float)))", ()), ("x", "tensor", "tensor(float)", ("x",)),
    ]  # fmt: skip
    added = [n.op_type for n in graph.node][: -len(proto.graph.node)]
    assert added == ["SequenceConstruct", "Optional", "SequenceEmpty", "Optional"]
    onnx.shape_inference.infer_shapes(source.proto, check_type=True, strict_mode=True)
    assert read_with(source, options) == (source, options)  # it stays as it is


def test_what_is_absent_is_no_input() -> None:
    source, options = read({"seq": [(2, 3)], "opt": None, "both": None, "x": (2, 3)})
    assert [i.name for i in source.proto.graph.input] == ["seq[0]", "x"]
    assert [(v.kind, v.tensors) for v in source.arguments[1:3]] == [("absent", ()), ("absent", ())]
    assert dict(options.shapes) == {"seq[0]": (2, 3), "x": (2, 3)}
    onnx.shape_inference.infer_shapes(source.proto, check_type=True, strict_mode=True)


def test_models_of_tensors_stay_as_they_are() -> None:
    proto = model([node("Neg", "x", "y")], [value("x", [2])], [value("y", [2])])
    options = CompileOptions(shapes={"x": (2,)})
    source, same = read_with(proto, options)
    assert source.proto is proto and same is options and source.arguments == ()


@pytest.mark.parametrize(
    ("shapes", "error", "words"),
    [
        ({}, ModelError, ("'seq' is a sequence", "shapes={'seq': [(1, 3), (1, 3)]}")),
        ({"seq": (2, 3)}, OptionError, ("(2, 3)", "one shape", "shapes={'seq': [")),
        ({"seq": None}, OptionError, ("'seq'", "no optional")),
        ({"x": None}, OptionError, ("'x'", "no optional")),
        ({"gone": None}, OptionError, ("'gone'",)),
        ({"seq": [(2, 3)]}, ModelError, ("'both' is a sequence", "None if it is absent")),
    ],
)
def test_what_is_not_stated_or_does_not_fit(shapes: Any, error: type[TvmExtError], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        read(shapes)
    text = f"{caught.value.message} {caught.value.fix}"
    assert all(word in text for word in words), text


def test_only_tensors_are_frozen() -> None:
    stated = {"seq": [(2, 3)], "opt": None, "both": None}
    source, _ = read(stated, freeze={"x": np.zeros((2, 3), np.float32)})
    assert [v.name for v in source.arguments] == ["seq", "opt", "both"]
    with pytest.raises(UnsupportedError, match="'opt' of small is an optional"):
        read(stated, freeze={"opt": np.zeros((2, 3), np.float32)})


def test_an_element_that_has_the_name_of_another_value() -> None:
    proto = nested({**KINDS, "seq[0]": TENSOR})
    with pytest.raises(UnsupportedError, match=r"'seq\[0\]'"):
        read_with(proto, CompileOptions(shapes={"seq": [(2, 3)], "opt": None, "both": None, "x": (2, 3)}))
