"""A program: the accelerator it is for, tensors, constants, instructions; and its bytes, under a checksum.

Bytes of a program::

    magic, version, lengths, SHA-256 | header (JSON) | instructions (zlib) | constants, each 64-byte aligned
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....core.errors import ProgramError
from ..config import RUNS, Accelerator
from ..simulation.queues import execution_order
from .check import ITEMSIZE, MAX_MEMORY_BYTES, check_program
from .isa import RECORD_BYTES, Instruction, decode, encode

MAGIC = b"TVMXSYST"
VERSION = 1
ROLES = ("input", "output", "scratch")
#: uint16 are bits of bfloat16.
CONSTANT_DTYPES = ("int8", "uint16", "int32", "float32")
_ALIGNMENT = 64
#: Magic, version, bytes of the header, instructions, their compressed bytes, bytes of the constants; then the digest.
_PREFIX = struct.Struct("<8sIIIIQ")
_START = 64
_CHECKSUM_FIX = "the file is damaged or was changed: export it again"


@dataclass(frozen=True)
class Tensor:
    """A tensor, dense and row-major.

    Attributes:
        name: unique in the program.
        role: "input" (given by the caller), "output" (given back) or "scratch" (between layers).
        shape, dtype: of what is there; dtype is one of int8, uint8, int32, float32.
        address: where it lies in the scratchpad, of a "scratch" tensor that stays on the chip; None: in DRAM.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    address: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or any(c.isspace() or c in ";,[]" for c in self.name):
            raise ProgramError(f"tensor name {self.name!r}: text without blanks and ; , [ ] is needed")
        if self.role not in ROLES or self.dtype not in ITEMSIZE:
            raise ProgramError(f"tensor {self.name}: {self.role!r}, {self.dtype!r}: choose {ROLES}, {tuple(ITEMSIZE)}")
        if any(type(size) is not int or size < 1 for size in self.shape) or self.nbytes > MAX_MEMORY_BYTES:
            raise ProgramError(f"tensor {self.name}: shape {self.shape} is not of sizes from 1, up to 1 GiB")
        fits = self.address is None or (self.role == "scratch" and type(self.address) is int and self.address >= 0)
        if not fits:
            raise ProgramError(
                f"tensor {self.name}: {self.role} at {self.address!r}; only scratch has an address from 0"
            )

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Layer:
    """The instructions [begin, end) that one operation of the model became, with facts for reports, in JSON values."""

    name: str
    begin: int
    end: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Program:
    """What the accelerator runs; checked when it is made, so that no view of it leaves a memory.

    Raises:
        ProgramError: an instruction, a tensor or a constant does not fit; names it.
    """

    accelerator: Accelerator
    tensors: tuple[Tensor, ...]
    constants: tuple[np.ndarray, ...]
    instructions: tuple[Instruction, ...]
    layers: tuple[Layer, ...] = ()
    run: str = RUNS[0]

    def __post_init__(self) -> None:
        if self.run not in RUNS:
            raise ProgramError(f"run={self.run!r} is unknown", fix=f"choose {' or '.join(map(repr, RUNS))}")
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise ProgramError(f"two tensors have one name, in {', '.join(names)}")
        for index, values in enumerate(self.constants):
            if str(values.dtype) not in CONSTANT_DTYPES or not values.flags.c_contiguous:
                raise ProgramError(f"constant {index} is not a contiguous array of {', '.join(CONSTANT_DTYPES)}")
        for layer in self.layers:
            if not 0 <= layer.begin <= layer.end <= len(self.instructions):
                raise ProgramError(f"layer {layer.name}: [{layer.begin}, {layer.end}) is not within the program")
        check_program(self)

    @functools.cached_property
    def order(self) -> list[int]:
        """Indices of the instructions in an order that the tokens allow; see
        :func:`..simulation.queues.execution_order`.

        Raises:
            ProgramError: deadlock; names the instruction that waits and for what.
        """
        return execution_order(self.instructions)

    def of_role(self, role: str) -> tuple[Tensor, ...]:
        """The tensors with that role, in order."""
        return tuple(tensor for tensor in self.tensors if tensor.role == role)

    def to_bytes(self) -> bytes:
        """What :func:`program_from_bytes` reads."""
        blob, offsets = _pack_constants(self.constants)
        header = {
            "accelerator": self.accelerator.as_dict(),
            "tensors": [_tensor_header(tensor) for tensor in self.tensors],
            "constants": [[list(c.shape), str(c.dtype), at] for c, at in zip(self.constants, offsets, strict=True)],
            "layers": [[layer.name, layer.begin, layer.end, dict(layer.facts)] for layer in self.layers],
            "run": self.run,
        }
        text = _padded(json.dumps(header, separators=(",", ":")).encode(), b" ")
        code = _padded(zlib.compress(encode(self.instructions)), b"\0")
        prefix = _PREFIX.pack(MAGIC, VERSION, len(text), len(self.instructions), len(code), len(blob))
        body = text + code + blob
        return prefix + _digest(prefix, body) + body


def program_from_bytes(data: bytes) -> Program:
    """Inverse of :meth:`Program.to_bytes`. The constants are views of `data`.

    Raises:
        ProgramError: wrong magic or version, cut off, checksum, or any part that does not fit; says which.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise ProgramError("these bytes are no program of the systolic accelerator", fix="give Program.to_bytes()")
    if len(data) < _START:
        raise ProgramError(f"the program is cut off at {len(data)} bytes", fix=_CHECKSUM_FIX)
    _, version, header_bytes, count, code_bytes, blob_bytes = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise ProgramError(f"the program has version {version}; this library reads {VERSION}", fix="export it again")
    instructions_at = _START + header_bytes
    blob_at = instructions_at + code_bytes
    if len(data) != blob_at + blob_bytes:
        raise ProgramError(f"the program has {len(data)} bytes; {blob_at + blob_bytes} are due", fix=_CHECKSUM_FIX)
    if data[_PREFIX.size : _START] != _digest(data[: _PREFIX.size], data[_START:]):
        raise ProgramError("the checksum of the program is wrong", fix=_CHECKSUM_FIX)
    instructions = decode(_inflated(data[instructions_at:blob_at], count * RECORD_BYTES))
    try:
        return _assembled(json.loads(data[_START:instructions_at]), instructions, memoryview(data)[blob_at:])
    except ProgramError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        raise ProgramError(f"the header of the program is malformed: {error}", fix=_CHECKSUM_FIX) from None


def _inflated(code: bytes, size: int) -> bytes:
    """Never more than `size` bytes, whatever the compressed ones claim."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(code, size + 1)
    except zlib.error as error:
        raise ProgramError(f"the instructions do not decompress: {error}", fix=_CHECKSUM_FIX) from None
    if len(data) != size or not inflater.eof:
        raise ProgramError(f"the instructions have other than the {size} bytes that are due", fix=_CHECKSUM_FIX)
    return data


def _assembled(header: Any, instructions: tuple[Instruction, ...], blob: memoryview) -> Program:
    constants: list[np.ndarray] = []
    for shape, dtype, offset in header["constants"]:
        if dtype not in CONSTANT_DTYPES or any(type(n) is not int or n < 0 for n in (offset, *shape)):
            raise ProgramError(f"constant {len(constants)}: {shape}, {dtype!r}, {offset!r} is malformed")
        constants.append(np.frombuffer(blob, dtype, math.prod(shape), offset).reshape(shape))
    return Program(
        Accelerator.from_dict(header["accelerator"]),
        tuple(Tensor(name, role, tuple(shape), *rest) for name, role, shape, *rest in header["tensors"]),
        tuple(constants), instructions,
        tuple(Layer(name, begin, end, facts) for name, begin, end, facts in header["layers"]),
        header.get("run", RUNS[0]),
    )  # fmt: skip


def _tensor_header(tensor: Tensor) -> list[Any]:
    place = [] if tensor.address is None else [tensor.address]
    return [tensor.name, tensor.role, list(tensor.shape), tensor.dtype, *place]


def _pack_constants(constants: tuple[np.ndarray, ...]) -> tuple[bytes, list[int]]:
    parts: list[bytes] = []
    offsets, at = [], 0
    for values in constants:
        offsets.append(at)
        parts.append(_padded(values.tobytes(), b"\0"))
        at += len(parts[-1])
    return b"".join(parts), offsets


def _padded(data: bytes, fill: bytes) -> bytes:
    return data + fill * (-len(data) % _ALIGNMENT)


def _digest(prefix: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(prefix)
    digest.update(body)
    return digest.digest()
