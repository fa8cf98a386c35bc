"""A small program with all kinds of instructions, its bytes taken apart, changed and put together again."""

import hashlib
import struct
import zlib

import numpy as np

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, Step, conv2d, filter_matrices, nchw, windowed
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator

#: Of the file format: the prefix, which the digest covers too, and where the body begins.
PREFIX, START = struct.Struct("<8sIIIIQ"), 64


def small_program(dataflow: str | None = None) -> Program:
    """Two convolutions of int8 and a pooling between them: all kinds of instructions, CONV with "rs" for GEMM."""
    rng = np.random.default_rng(0)
    geometry = ConvGeometry(2, (4, 5), (2, 2), padding=(1, 0, 0, 1))
    w1, w2 = (filter_matrices(rng.integers(-128, 128, (2, 2, 2, 2), dtype=np.int8)) for _ in range(2))
    row = rng.integers(-1000, 1000, 2, dtype=np.int32)
    steps = (
        Step("add", row=row, dtype="int32"),
        Step("dequantize", row=np.float32([0.01, 0.02])),
        Step("add", tile=nchw("x", 2, (4, 5), 1), dtype="int8", scale=0.5),
        Step("relu"),
        Step("clip", scale=40.0, low=1.5),
        Step("quantize", scale=0.25, zero_point=-3),
    )
    layers = [
        conv2d("first", "x", w1, "h", geometry, steps=steps, pad_value=4),
        windowed("pooled", "max", "h", None, "p", geometry, pad_value=-128),
        conv2d("second", "p", w2, "y", geometry),
    ]
    tensors = [
        Tensor("x", "input", (1, 2, 4, 5), "int8"),
        *(Tensor(name, "scratch", (1, 2, 4, 5), "int8") for name in "hp"),
        Tensor("y", "output", (1, 2, 4, 5), "int32"),
    ]
    accelerator = Accelerator(rows=4, cols=4, scratchpad_bytes=1024, accumulator_bytes=128)
    return lower(layers, tensors, accelerator, dataflow)


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
