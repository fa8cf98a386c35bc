"""Mutations of a file's bytes, blind or along protobuf's wire format. Each is (bytes, generator) -> bytes."""

from collections.abc import Callable, Iterator
from random import Random

#: What breaks readers of numbers.
_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF)
_NUMBERS = (
    0, 1, 127, 128, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
_SMALL = 1 << 12


def flip(data: bytes, rng: Random) -> bytes:
    """A few bits changed."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwrite(data: bytes, rng: Random) -> bytes:
    """A byte, or a few, of an interesting value."""
    at, count = rng.randrange(len(data)), rng.choice((1, 1, 2, 4, 8))
    return data[:at] + bytes([rng.choice(_BYTES)]) * count + data[at + count :]


def cut(data: bytes, rng: Random) -> bytes:
    """The end, the beginning or a piece is missing."""
    start = rng.randrange(len(data))
    length = rng.choice((1, 2, 7, len(data)))
    return data[:start] + data[start + length :] if rng.random() < 0.8 else data[start:]


def insert(data: bytes, rng: Random) -> bytes:
    """Random bytes in the middle."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 8, 100))) + data[at:]


def repeat(data: bytes, rng: Random) -> bytes:
    """A piece stands there twice, or many times."""
    start, length = rng.randrange(len(data)), rng.randrange(1, 64)
    return data[:start] + data[start : start + length] * rng.choice((2, 3, 50)) + data[start + length :]


def swap(data: bytes, rng: Random) -> bytes:
    """Two pieces have changed places."""
    a, b, c = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def length(data: bytes, rng: Random) -> bytes:
    """A field of the wire format states another length, with or without the bytes for it."""
    fields = [f for f in _fields(data) if f[1] == 2]
    if not fields:
        return flip(data, rng)
    _, _, number_at, value_at, end = rng.choice(fields)
    size = rng.choice((end - value_at + 1, end - value_at - 1, rng.choice(_NUMBERS), 0))
    return data[:number_at] + varint(max(size, 0)) + data[value_at:]


def number(data: bytes, rng: Random) -> bytes:
    """A varint has another value; the lengths around it stay right only by chance."""
    fields = [f for f in _fields(data) if f[1] == 0]
    if not fields:
        return flip(data, rng)
    _, _, number_at, _, end = rng.choice(fields)
    return data[:number_at] + varint(rng.choice(_NUMBERS)) + data[end:]


def kind(data: bytes, rng: Random) -> bytes:
    """A field has another number or wire type."""
    fields = _fields(data)
    if not fields:
        return flip(data, rng)
    start, _, number_at, _, _ = rng.choice(fields)
    return data[:start] + varint(rng.randrange(1, 30) << 3 | rng.choice((0, 1, 2, 5))) + data[number_at:]


def drop_field(data: bytes, rng: Random) -> bytes:
    """A whole field is missing, or stands there twice; the length of what holds it is wrong then."""
    fields = _fields(data)
    if not fields:
        return flip(data, rng)
    start, _, _, _, end = rng.choice(fields)
    return data[:start] + data[start:end] * rng.choice((0, 2)) + data[end:]


def text(data: bytes, rng: Random) -> bytes:
    """Some name is no UTF-8, or has odd characters in it; lengths stay right."""
    strings = [f for f in _fields(data) if f[1] == 2 and 0 < f[4] - f[3] < 40 and data[f[3] : f[4]].isascii()]
    if not strings:
        return flip(data, rng)
    _, _, _, value_at, end = rng.choice(strings)
    old, at = data[value_at:end], rng.randrange(end - value_at)
    odd = rng.choice((b"\xff", b"\x00", b"\n", b"\xc0", b'"', b"'", b"\\", b"%", b"{", b"/", b".", b" "))
    new = old[:at] + odd + old[at + 1 :]
    return data.replace(old, new) if rng.random() < 0.5 else data[:value_at] + new + data[end:]


def varint(value: int) -> bytes:
    """Protobuf's form of a number."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _fields(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """(start, wire type, start of length or number, start of value, end) of each field, on all levels that read so."""
    result: list[tuple[int, int, int, int, int]] = []
    pieces = [(0, len(data))]
    while pieces and len(result) < _SMALL:
        begin, end = pieces.pop()
        for entry in _level(data, begin, end):
            result.append(entry)
            if entry[1] == 2 and entry[4] - entry[3] > 1:
                pieces.append((entry[3], entry[4]))
    return result


def _level(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    while position < end:
        tag, value_at = _read(data, position, end)
        if tag is None or not tag >> 3:
            return
        size, after = _read(data, value_at, end) if tag & 7 in (0, 2) else (0, value_at)
        if size is None:
            return
        stop = {0: after, 1: value_at + 8, 2: after + size, 5: value_at + 4}.get(tag & 7, end + 1)
        if stop > end:
            return
        yield position, tag & 7, value_at, after, stop
        position = stop


def _read(data: bytes, position: int, end: int) -> tuple[int | None, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    return None, end


MUTATORS: tuple[Callable[[bytes, Random], bytes], ...] = (
    flip, overwrite, cut, insert, repeat, swap, length, number, kind, drop_field, text,
)  # fmt: skip
