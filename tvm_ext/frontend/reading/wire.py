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
    return Message(data).inner(7).text(GRAPH_NAME)


def external_locations(data: bytes) -> tuple[str, ...]:
    """Locations of the external files that tensors of the model use, sorted, each once."""
    return tuple(sorted(set(_locations(data, "ModelProto", 0, len(data), _DEEPEST))))


def _locations(data: bytes, message: str, start: int, end: int, depth: int) -> Iterator[str]:
    children = CHILDREN[message] if depth else {}
    for number, first, last in fields(data, start, end):
        child = children.get(number)
        if child == "TensorProto":
            yield from _tensor_location(Message(data, first, last))
        elif child and (child == "GraphProto" or data.find(_LOCATION_ENTRY, first, last) >= 0):
            yield from _locations(data, child, first, last, depth - 1)


def _tensor_location(tensor: Message) -> Iterator[str]:
    location = {entry.text(1): entry.text(2) for entry in tensor.all(EXTERNAL_DATA)}.get("location")
    if tensor.number(DATA_LOCATION) == 1 and location:
        yield location


class Message:
    """A protobuf message within bytes; of a field that comes twice the last one counts, as protobuf has it."""

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._parts: dict[int, list[tuple[int, int]]] = {}
        for number, first, last in fields(data, start, len(data) if end is None else end):
            self._parts.setdefault(number, []).append((first, last))

    def __contains__(self, number: int) -> bool:
        return number in self._parts

    def all(self, number: int) -> list[Message]:
        """The messages of a field that may come several times."""
        return [Message(self._data, *part) for part in self._parts.get(number, ())]

    def inner(self, number: int) -> Message:
        """The message of a field; an empty one if it is not there."""
        return Message(self._data, *self._parts.get(number, [(0, 0)])[-1])

    def text(self, number: int) -> str:
        """The text of a field; "" if it is not there."""
        first, last = self._parts.get(number, [(0, 0)])[-1]
        return self._data[first:last].decode("utf-8", "replace")

    def number(self, number: int) -> int | None:
        """A signed number of 64 bits; None if the field is not there."""
        if number not in self._parts:
            return None
        value, _ = varint(self._data, *self._parts[number][-1])
        return value if value < 1 << 63 else value - (1 << 64)


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
