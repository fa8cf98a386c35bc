"""Light reading of the wire format."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tvm_ext.frontend.reading import wire

from ..graphs import linear_model, model, node, value


def test_field_numbers_are_those_of_the_onnx_schema():
    for message, children in wire.CHILDREN.items():
        fields = getattr(onnx, message).DESCRIPTOR.fields
        holders = ("TensorProto", "GraphProto", "NodeProto", "AttributeProto", "SparseTensorProto", "FunctionProto")
        leading = {f.number: f.message_type.name for f in fields if f.message_type and f.message_type.name in holders}
        assert leading == children
    tensor = onnx.TensorProto.DESCRIPTOR.fields_by_name
    assert (tensor["external_data"].number, tensor["data_location"].number) == (wire.EXTERNAL_DATA, wire.DATA_LOCATION)
    assert onnx.GraphProto.DESCRIPTOR.fields_by_name["name"].number == wire.GRAPH_NAME


def test_name_of_the_graph():
    assert wire.graph_name(linear_model().SerializeToString()) == "small"


def test_a_model_without_external_data_has_no_locations():
    assert wire.external_locations(linear_model().SerializeToString()) == ()


def _external(location: str) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.zeros(300, np.float32), location)
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return tensor


def test_locations_of_initializers_attributes_and_branches():
    then = onnx.helper.make_graph([], "then", [], [value("t", [300])], [_external("branch.bin")])
    nodes = [
        node("Constant", [], ["c"], "constant", value=_external("attribute.bin")),
        node("If", ["c"], ["y"], "if", then_branch=then, else_branch=then),
    ]
    proto = model(nodes, [], [value("y", [300])])
    proto.graph.initializer.extend([_external("b.bin"), _external("a.bin"), _external("b.bin")])
    result = wire.external_locations(proto.SerializeToString())
    assert result == ("a.bin", "attribute.bin", "b.bin", "branch.bin")


def test_a_location_that_is_not_marked_external_is_not_used():
    proto = linear_model()
    proto.graph.initializer[0].external_data.add(key="location", value="other.bin")
    assert wire.external_locations(proto.SerializeToString()) == ()


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_are_no_model_yield_nothing_and_raise_nothing(seed):
    data = np.random.default_rng(seed).integers(0, 256, 500, np.uint8).tobytes()
    assert wire.external_locations(data) == ()
    wire.graph_name(data)


def test_every_cut_of_a_model_is_read_without_an_error():
    data = linear_model().SerializeToString()
    for size in range(len(data)):
        wire.graph_name(data[:size])
        assert wire.external_locations(data[:size]) == ()


def test_messages_nested_without_end_are_not_followed():
    """Protobuf decodes a hundred within each other; Python would fall over its own limit at a thousand."""
    entry = b"\x0a\x08location"
    data = entry
    for tag in (b"\x0a", b"\x2a", b"\x32") * 1500:  # node of a graph, attribute of a node, graph of an attribute
        data = tag + varint(len(data)) + data
    assert wire.external_locations(b"\x3a" + varint(len(data)) + data) == ()


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
