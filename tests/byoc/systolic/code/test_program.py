"""Bytes of a program: round trip, checksum, and 1,000 changed programs whose checksum was made anew."""

from __future__ import annotations

import hashlib
import struct
import zlib

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, Step, conv2d, filter_matrices, nchw
from tvm_ext.byoc.systolic.code.program import Program, Tensor, program_from_bytes
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import InputError, ProgramError

#: Of the file format: the prefix, which the digest covers too, and where the body begins.
PREFIX, START = struct.Struct("<8sIIIIQ"), 64


def small_program() -> Program:
    """Two convolutions of int8 with all kinds of instructions."""
    rng = np.random.default_rng(0)
    geometry = ConvGeometry(2, (4, 5), (2, 2), padding=(1, 0, 0, 1))
    w1, w2 = (filter_matrices(rng.integers(-128, 128, (2, 2, 2, 2), dtype=np.int8)) for _ in range(2))
    row = rng.integers(-1000, 1000, 2, dtype=np.int32)
    steps = (
        Step("add", row=row, dtype="int32"),
        Step("dequantize", row=np.float32([0.01, 0.02])),
        Step("add", tile=nchw("x", 2, (4, 5), 1), dtype="int8", scale=0.5),
        Step("relu"),
        Step("quantize", scale=0.25, zero_point=-3),
    )
    layers = [
        conv2d("first", "x", w1, "h", geometry, steps=steps, pad_value=4),
        conv2d("second", "h", w2, "y", geometry),
    ]
    tensors = [
        Tensor("x", "input", (1, 2, 4, 5), "int8"),
        Tensor("h", "scratch", (1, 2, 4, 5), "int8"),
        Tensor("y", "output", (1, 2, 4, 5), "int32"),
    ]
    return lower(layers, tensors, Accelerator(rows=4, cols=4, scratchpad_bytes=1024, accumulator_bytes=128))


@pytest.fixture(scope="module")
def data() -> bytes:
    return small_program().to_bytes()


def sealed(data: bytes) -> bytes:
    """The bytes with the digest that they should have."""
    digest = hashlib.sha256(data[: PREFIX.size] + data[START:]).digest()
    return data[: PREFIX.size] + digest + data[START:]


def sections(data: bytes) -> list[bytearray]:
    """Header, instructions (not compressed), constants."""
    _, _, header, _, code, _ = PREFIX.unpack_from(data)
    at = START + header
    raw = zlib.decompressobj().decompress(data[at : at + code])
    return [bytearray(part) for part in (data[START:at], raw, data[at + code :])]


def joined(header: bytes, code: bytes, blob: bytes) -> bytes:
    """A program of these sections, with lengths and digest that fit."""
    packed = zlib.compress(code)
    packed += b"\0" * (-len(packed) % 64)
    prefix = PREFIX.pack(b"TVMXSYST", 1, len(header), len(code) // 64, len(packed), len(blob))
    return sealed(prefix.ljust(START, b"\0") + header + packed + blob)


def test_round_trip(data: bytes) -> None:
    program, again = small_program(), program_from_bytes(data)
    assert again.to_bytes() == data == sealed(data) == joined(*sections(data))
    assert again.accelerator == program.accelerator and again.tensors == program.tensors
    assert again.instructions == program.instructions and again.layers == program.layers
    x = np.random.default_rng(1).integers(-128, 128, (1, 2, 4, 5), dtype=np.int8)
    np.testing.assert_array_equal(run(again, {"x": x})["y"], run(program, {"x": x})["y"])


def test_any_changed_byte_is_refused(data: bytes) -> None:
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises(ProgramError):
            program_from_bytes(bytes(changed))


def zlib_at(data: bytes) -> bytes:
    """The first bytes of the compressed instructions."""
    at = START + PREFIX.unpack_from(data)[2]
    return data[at : at + 16]


def test_what_is_wrong_is_named(data: bytes) -> None:
    changes = {
        "no program": b"ELF" + data[3:],
        "version 2": data[:8] + b"\2" + data[9:],
        "cut off at 20": data[:20],
        "bytes; .* are due": data[:-64],
        "do not decompress": sealed(data[:-START].replace(zlib_at(data), b"\0" * 16) + data[-START:]),
        "checksum": data[:-1] + bytes([data[-1] ^ 1]),
        "the header .* is malformed": sealed(data.replace(b'{"accelerator"', b'["accelerator"', 1)),
        "unknown setting 'rowz'": sealed(data.replace(b'"rows"', b'"rowz"', 1)),
        "rows=0": sealed(data.replace(b'"rows":4', b'"rows":0', 1)),
    }
    for message, changed in changes.items():
        with pytest.raises(ProgramError, match=message):
            program_from_bytes(changed)


def mutated(rng: np.random.Generator, data: bytes) -> bytes:
    """One to three bytes behind the checksum set, or a bit flipped, or two instructions exchanged."""
    header, code, blob = parts = sections(data)
    for _ in range(rng.integers(1, 4)):
        part = parts[rng.choice(3, p=(0.2, 0.7, 0.1))]
        way = rng.integers(3)
        if way == 0:
            first, second = (64 * int(i) for i in rng.integers(len(code) // 64, size=2))
            code[first : first + 64], code[second : second + 64] = code[second : second + 64], code[first : first + 64]
        elif way == 1:
            part[rng.integers(len(part))] ^= 1 << rng.integers(8)
        else:
            part[rng.integers(len(part))] = rng.integers(256)
    return joined(*map(bytes, (header, code, blob)))


@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_mutations(seed: int, data: bytes) -> None:
    """An error that names what is wrong, or equal values from numpy and from the stepper; never anything else."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (1, 2, 4, 5), dtype=np.int8)
    ran = 0
    for _ in range(100):
        changed = mutated(rng, data)
        try:
            program = program_from_bytes(changed)
            values = run(program, {"x": x})
        except (ProgramError, InputError) as error:
            assert error.message
            continue
        ran += 1
        stepped = run(program, {"x": x}, backend="stepper")
        for name, value in values.items():
            np.testing.assert_array_equal(value, stepped[name])
        assert simulate(program).cycles <= simulate(program).totals.serial_cycles
    assert 0 < ran < 100
