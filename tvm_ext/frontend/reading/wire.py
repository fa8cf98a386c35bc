"""Light reading of an ONNX file's protobuf wire format: the graph's name and the external files it uses.

A cache key needs both, and decoding 45 MB of weights (or importing onnx) for them would cost more than the rest of
a cache hit. Only the fields on the way are visited; weights are stepped over. Bytes that are no protobuf yield
nothing: whoever decodes the model reports them.
"""

from __future__ import annotations

from collections.abc import Iterator

#: message -> field number -> message, for the fields that can lead to a tensor.
CHILDREN = {
    "ModelProto": {7: "GraphProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto", 6: "GraphProto", 10: "TensorProto", 11: "GraphProto",
        22: "SparseTensorProto", 23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
}  # fmt: skip
GRAPH_NAME = 2
EXTERNAL_DATA, DATA_LOCATION = 13, 14
#: Messages within messages that protobuf decodes.
_DEEPEST = 100
_LOCATION_ENTRY = b"\x0a\x08location"


def graph_name(data: bytes) -> str:
    """The name of the model's graph; "" if it has none or the bytes are no model."""
    for number, start, end in fields(data, 0, len(data)):
        if number == 7:
            for inner, first, last in fields(data, start, end):
                if inner == GRAPH_NAME:
                    return data[first:last].decode("utf-8", "replace")
    return ""


def external_locations(data: bytes) -> tuple[str, ...]:
    """Locations of the external files that tensors of the model use, sorted, each once."""
    return tuple(sorted(set(_locations(data, "ModelProto", 0, len(data), _DEEPEST))))


def _locations(data: bytes, message: str, start: int, end: int, depth: int) -> Iterator[str]:
    children = CHILDREN[message] if depth else {}
    for number, first, last in fields(data, start, end):
        child = children.get(number)
        if child == "TensorProto":
            yield from _tensor_location(data, first, last)
        elif child and (child == "GraphProto" or data.find(_LOCATION_ENTRY, first, last) >= 0):
            yield from _locations(data, child, first, last, depth - 1)


def _tensor_location(data: bytes, start: int, end: int) -> Iterator[str]:
    location, external = "", False
    for number, first, last in fields(data, start, end):
        if number == DATA_LOCATION:
            external = data[first:last] == b"\x01"
        elif number == EXTERNAL_DATA:
            entry = {n: data[i:j] for n, i, j in fields(data, first, last)}
            if entry.get(1) == b"location":
                location = entry.get(2, b"").decode("utf-8", "replace")
    if external and location:
        yield location


def fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, first byte, last byte + 1) of each field; stops where the bytes are no valid message."""
    while position < end:
        tag, position = varint(data, position, end)
        kind, start = tag & 7, position
        if kind == 0:
            _, position = varint(data, position, end)
        elif kind == 1:
            position += 8
        elif kind == 2:
            length, start = varint(data, position, end)
            position = start + length
        elif kind == 5:
            position += 4
        else:
            return
        if position > end or start > end or not tag >> 3:
            return
        yield tag >> 3, start, position


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """(number at `position` and the position after it; a position past `end` if it is cut off."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, end + 1
