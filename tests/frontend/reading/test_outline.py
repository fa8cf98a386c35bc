"""What a model file says of itself, against what onnx reads."""

import onnx
from onnx import TensorProto, helper

from tvm_ext.frontend.reading.outline import Outline, outline_of

from ..graphs import model, node, value


def described() -> onnx.ModelProto:
    inputs = [
        value("a", ["N", 3, None, "?"]), value("b", None), value("scalar", []), value("w", [2]),
        helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, ["N"]),
    ]  # fmt: skip
    proto = model([node("Identity", "a", "y")], inputs, [value("y", None)], {"w": [1.0, 2.0], "v": [3.0]})
    proto.producer_name, proto.domain, proto.doc_string, proto.model_version = "me", "here", "text", -3
    proto.graph.doc_string = "of the graph"
    helper.set_model_props(proto, {"names": "{0: 'cat'}", "empty": ""})
    return proto


def test_it_is_what_onnx_reads() -> None:
    proto = described()
    outline = outline_of(proto.SerializeToString())
    assert outline.inputs == {"a": ("N", 3, None, None), "b": None, "scalar": (), "s": None}
    assert outline.weights == {"w", "v"}
    texts = (proto.graph.name, "of the graph", "me", "here", "text", -3)
    assert texts == (
        outline.graph_name, outline.graph_description, outline.producer, outline.domain, outline.description,
        outline.version,
    )  # fmt: skip
    assert outline.properties == {"names": "{0: 'cat'}", "empty": ""}


def test_what_is_missing_is_empty() -> None:
    for data in (b"", b"123", b"\x08\x09\x3a\xff", bytes(range(256))):
        assert outline_of(data) == Outline()
    assert outline_of(
        model([node("Neg", "x", "y")], [value("x", [-1])], [value("y", [1])]).SerializeToString()
    ).inputs == {"x": (None,)}
