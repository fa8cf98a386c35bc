"""The instruction set: eleven instructions for three queues, each a frozen dataclass with a 64-byte binary form.

Three units work at once, each on a queue of its own, in order (the idea of VTA: Moreau et al., IEEE Micro 2019)::

    load:    LOAD, LOAD.WINDOWS, LOAD.CONST            DRAM -> scratchpad
    compute: GEMM, GEMM.SPARSE, CONV, REDUCE, VECTOR   scratchpad -> accumulator, in place in the accumulator
    store:   STORE                                     accumulator -> DRAM

Neighbouring queues keep each other in step with tokens: an instruction waits for (`pop`) a token of the queue before
(`prev`) or behind (`next`) its own, and when it is done hands out (`push`) one. SYNC and FINISH stand in all queues.

A tile lies dense and row-major where it is: scratchpad addresses are bytes, accumulator addresses are words of 4 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias, get_type_hints

from ....core.errors import ProgramError
from .sparse import kept_depth

#: Bytes of an instruction: operation code, tokens, fields, zeros.
RECORD_BYTES = 64
QUEUES = ("load", "compute", "store")
#: Bits of `tokens`; their names in assembler text, in this order.
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = 1, 2, 4, 8
TOKEN_NAMES = {"pop.prev": POP_PREV, "pop.next": POP_NEXT, "push.prev": PUSH_PREV, "push.next": PUSH_NEXT}
#: The tokens that make sense: load has no queue before it, store none behind, SYNC and FINISH wait for all anyhow.
_ALLOWED_TOKENS = {
    "load": POP_NEXT | PUSH_NEXT,
    "compute": POP_PREV | POP_NEXT | PUSH_PREV | PUSH_NEXT,
    "store": POP_PREV | PUSH_PREV,
    "all": 0,
}

# Fields: letters of the module struct, or the choices of which a byte holds the number.
U8: TypeAlias = Annotated[int, "B"]
U16: TypeAlias = Annotated[int, "H"]
U32: TypeAlias = Annotated[int, "I"]
U64: TypeAlias = Annotated[int, "Q"]
I8: TypeAlias = Annotated[int, "b"]
I32: TypeAlias = Annotated[int, "i"]
F32: TypeAlias = Annotated[float, "f"]
DataflowName: TypeAlias = Annotated[str, ("ws", "os", "is")]
OperandName: TypeAlias = Annotated[str, ("a", "b", "epilogue")]
VectorOp: TypeAlias = Annotated[str, ("add", "multiply", "relu", "gelu", "gelu_tanh", "dequantize", "quantize", "clip")]
ReduceOp: TypeAlias = Annotated[str, ("max", "sum", "dot")]
SourceName: TypeAlias = Annotated[str, ("none", "row", "tile")]
VectorDtype: TypeAlias = Annotated[str, ("float32", "int32", "int8")]


@dataclass(frozen=True, slots=True)
class Load:
    """Tile [rows, cols] of a tensor, elements `offset + i row_stride + j col_stride`, to the scratchpad.

    uint8 elements arrive as int8, 128 less, for the array has signed operands. To an array of bfloat16 operands a and b
    of float32 arrive rounded; else `operand` only labels the traffic.
    """

    mnemonic: ClassVar[str] = "LOAD"
    queue: ClassVar[str] = "load"
    operand: OperandName
    tensor: U16
    dst: U32
    rows: U32
    cols: U32
    offset: U64
    row_stride: U32
    col_stride: U32
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class LoadWindows:
    """Tile of the im2col matrix of an image [channels, height, width] at `offset` of a tensor.

    Row r of that matrix is output pixel (r / out_width, r % out_width); column c is (channel, kernel row, kernel
    column). The tile begins at (`row_begin`, `col_begin`). What lies outside of the image is `pad_value`; around one of
    float32 it is 0, or where `pad_value` is -128, the least of int8, minus infinity.
    """

    mnemonic: ClassVar[str] = "LOAD.WINDOWS"
    queue: ClassVar[str] = "load"
    tensor: U16
    dst: U32
    rows: U32
    cols: U32
    row_begin: U32
    col_begin: U32
    offset: U64
    channels: U16
    height: U16
    width: U16
    out_height: U16
    out_width: U16
    kernel_height: U8
    kernel_width: U8
    stride_height: U8
    stride_width: U8
    dilation_height: U8
    dilation_width: U8
    pad_top: U8
    pad_left: U8
    pad_value: I8
    tokens: int = 0

    @property
    def operand(self) -> str:
        return "a"


@dataclass(frozen=True, slots=True)
class LoadConstant:
    """`rows * cols` consecutive elements of a constant, from `offset` on: a weight tile, packed at compile time."""

    mnemonic: ClassVar[str] = "LOAD.CONST"
    queue: ClassVar[str] = "load"
    operand: OperandName
    constant: U16
    dst: U32
    rows: U32
    cols: U32
    offset: U64
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Gemm:
    """c[m, n] = a[m, k] b[k, n], or c += with `accumulate`; a and b in the scratchpad, c in the accumulator."""

    mnemonic: ClassVar[str] = "GEMM"
    queue: ClassVar[str] = "compute"
    is_sparse: ClassVar[bool] = False
    dataflow: DataflowName
    accumulate: Annotated[int, (0, 1)]
    a: U32
    b: U32
    c: U32
    m: U16
    k: U16
    n: U16
    tokens: int = 0

    @property
    def depth(self) -> int:
        """Rows of B that the array has."""
        return self.k


@dataclass(frozen=True, slots=True)
class SparseGemm(Gemm):
    """The same with b of 2:4, compressed (:mod:`.sparse`): the array has the values that are kept, half as many rows,
    and a PE takes of four values of a the one of its weight's row."""

    mnemonic: ClassVar[str] = "GEMM.SPARSE"
    is_sparse: ClassVar[bool] = True

    @property
    def depth(self) -> int:
        return kept_depth(self.k)


@dataclass(frozen=True, slots=True)
class Conv:
    """c[pixels of the output, n] = an image a[channels, height, width] * b[channels * kernel height * kernel width, n],
    or c += with `accumulate`, by a row-stationary array; a GEMM is one of 1x1.

    a and b lie in the scratchpad, c in the accumulator. What lies outside of the image is `pad_value`, 0 of floats.
    """

    mnemonic: ClassVar[str] = "CONV"
    queue: ClassVar[str] = "compute"
    accumulate: Annotated[int, (0, 1)]
    a: U32
    b: U32
    c: U32
    n: U16
    channels: U16
    height: U16
    width: U16
    out_height: U16
    out_width: U16
    kernel_height: U8 = 1
    kernel_width: U8 = 1
    stride_height: U8 = 1
    stride_width: U8 = 1
    dilation_height: U8 = 1
    dilation_width: U8 = 1
    pad_top: U8 = 0
    pad_left: U8 = 0
    pad_value: I8 = 0
    tokens: int = 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, k and n of the GEMM with the im2col matrix of the image."""
        return self.out_height * self.out_width, self.channels * self.kernel_height * self.kernel_width, self.n


def padded_size(windows: LoadWindows | Conv) -> tuple[int, int]:
    """Height and width of the image with padding, as far as any window reaches."""
    w = windows
    height = (w.out_height - 1) * w.stride_height + (w.kernel_height - 1) * w.dilation_height + 1
    width = (w.out_width - 1) * w.stride_width + (w.kernel_width - 1) * w.dilation_width + 1
    return max(height, w.pad_top + w.height), max(width, w.pad_left + w.width)


@dataclass(frozen=True, slots=True)
class Vector:
    """One elementwise operation on the tile c[rows, cols] of the accumulator, in place; :mod:`..simulation.vector`
    defines them.

    Its second operand is none (`scale` and `zero_point` then say it), a row [cols] or a tile [rows, cols] in the
    scratchpad, of `dtype`. For relu, `dtype` is what c holds; clip keeps to `low` and `scale`, of which either may be
    infinite.
    """

    mnemonic: ClassVar[str] = "VECTOR"
    queue: ClassVar[str] = "compute"
    op: VectorOp
    c: U32
    rows: U16
    cols: U16
    source: SourceName = "none"
    address: U32 = 0
    dtype: VectorDtype = "float32"
    scale: F32 = 1.0
    zero_point: I32 = 0
    low: F32 = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reduce:
    """c[i, j] = max or sum over t of a[i, j, t], or dot: sum over t of a[i, j, t] b[t, j]; by the vector unit.

    a[rows, cols, taps] and b[taps, cols] lie in the scratchpad, in the dtype of the array's operands; with
    `accumulate` what c holds is one more term. b is read by dot only. Pooling is of it, and depthwise convolution, of
    which a column of the array would have as many rows as taps.
    """

    mnemonic: ClassVar[str] = "REDUCE"
    queue: ClassVar[str] = "compute"
    op: ReduceOp
    accumulate: Annotated[int, (0, 1)]
    a: U32
    b: U32
    c: U32
    rows: U16
    cols: U16
    taps: U16
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Store:
    """Tile c[rows, cols] of the accumulator to a tensor, at `offset + i row_stride + j col_stride`.

    int8 and uint8 tensors get int32 words, saturated (uint8: plus 128); others get the words as they are.
    """

    mnemonic: ClassVar[str] = "STORE"
    queue: ClassVar[str] = "store"
    tensor: U16
    c: U32
    rows: U16
    cols: U16
    offset: U64
    row_stride: U32
    col_stride: U32
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sync:
    """No queue goes on before all have come here: what was stored may be loaded behind it."""

    mnemonic: ClassVar[str] = "SYNC"
    queue: ClassVar[str] = "all"
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """The end; the last instruction of every program, and only there."""

    mnemonic: ClassVar[str] = "FINISH"
    queue: ClassVar[str] = "all"
    tokens: int = 0


Instruction = Load | LoadWindows | LoadConstant | Gemm | SparseGemm | Vector | Store | Sync | Finish | Reduce | Conv
#: Operation code -> class; 0 is left out, so that zeros are no program.
CLASSES: dict[int, type[Any]] = dict(
    enumerate((Load, LoadWindows, LoadConstant, Gemm, Vector, Store, Sync, Finish, Reduce, Conv, SparseGemm), start=1)
)


@dataclass(frozen=True)
class _Form:
    """How a class is written in binary: names and choices of its fields, and their struct format."""

    code: int
    kind: type[Any]
    names: tuple[str, ...]
    choices: tuple[tuple[Any, ...], ...]
    packer: struct.Struct

    @classmethod
    def of(cls, code: int, kind: type[Any]) -> _Form:
        hints = get_type_hints(kind, include_extras=True)
        marks = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
        choices = tuple(mark if isinstance(mark, tuple) else () for mark in marks.values())
        letters = "".join("B" if isinstance(mark, tuple) else mark for mark in marks.values())
        return cls(code, kind, tuple(marks), choices, struct.Struct("<BB" + letters))


FORMS = {kind: _Form.of(code, kind) for code, kind in CLASSES.items()}


def text_of(instruction: Instruction) -> str:
    """One line of assembler: mnemonic, fields as name=value, tokens."""
    fields = [f"{name}={getattr(instruction, name)}" for name in FORMS[type(instruction)].names]
    tokens = [name for name, bit in TOKEN_NAMES.items() if instruction.tokens & bit]
    return " ".join([instruction.mnemonic, *fields, *tokens])


def error_at(index: int, instruction: Instruction, problem: str, *, fix: str = "") -> ProgramError:
    """A ProgramError that names the instruction by its index and text."""
    return ProgramError(f"instruction {index} ({text_of(instruction)}): {problem}", fix=fix)


def check_tokens(index: int, instruction: Instruction) -> None:
    """Raises ProgramError where an instruction has a token of a queue that its own does not touch."""
    if instruction.tokens & ~_ALLOWED_TOKENS[instruction.queue]:
        raise error_at(index, instruction, f"the {instruction.queue} queue has no such neighbour for its tokens")


def encode(instructions: Sequence[Instruction]) -> bytes:
    """64 bytes an instruction.

    Raises:
        ProgramError: a field is out of the range of its width, or none of its choices.
    """
    return b"".join(_encode(index, instruction) for index, instruction in enumerate(instructions))


def _encode(index: int, instruction: Instruction) -> bytes:
    form = FORMS[type(instruction)]
    check_tokens(index, instruction)
    try:
        values = [
            choices.index(getattr(instruction, name)) if choices else getattr(instruction, name)
            for name, choices in zip(form.names, form.choices, strict=True)
        ]
        return form.packer.pack(form.code, instruction.tokens, *values).ljust(RECORD_BYTES, b"\0")
    except (struct.error, ValueError, OverflowError) as error:
        raise error_at(index, instruction, f"a field does not fit its width: {error}") from None


def decode(data: bytes) -> tuple[Instruction, ...]:
    """Inverse of :func:`encode`.

    Raises:
        ProgramError: the length, an operation code, a choice, a token or the fill is wrong; names the index.
    """
    if len(data) % RECORD_BYTES:
        raise ProgramError(f"{len(data)} bytes of instructions: a multiple of {RECORD_BYTES} is needed")
    return tuple(_decode(at // RECORD_BYTES, data[at : at + RECORD_BYTES]) for at in range(0, len(data), RECORD_BYTES))


def _decode(index: int, record: bytes) -> Instruction:
    kind = CLASSES.get(record[0])
    if kind is None:
        raise ProgramError(f"instruction {index}: operation code {record[0]} is unknown; 1 to {len(CLASSES)} are known")
    form = FORMS[kind]
    if any(record[form.packer.size :]):
        raise ProgramError(f"instruction {index} ({kind.mnemonic}): bytes behind its fields are not zero")
    _, tokens, *raw = form.packer.unpack_from(record)
    for name, choices, value in zip(form.names, form.choices, raw, strict=True):
        if choices and value >= len(choices):
            raise ProgramError(f"instruction {index} ({kind.mnemonic}): {name} {value} is none of {choices}")
    values = [choices[value] if choices else value for choices, value in zip(form.choices, raw, strict=True)]
    instruction = kind(*values, tokens=tokens)
    check_tokens(index, instruction)
    return instruction
