"""Code of one layer: loops over tiles, unrolled, with buffers in turn and the tokens that keep them safe.

Each step of the loops loads into buffers that the step before does not use, unless the tile is there still::

    load:     A0 B0 | A1 B1 | A2 B2 (waits for step 0) | ...
    compute:          GEMM 0 (waits for load 0) | GEMM 1 | ...   epilogue behind the last GEMM of an output tile
    store:                                                STORE (waits for the epilogue)

Tokens: load -> compute "step s is in the scratchpad"; compute -> load "step s is done, step s + 2 may load"; compute ->
store "output tile o is done"; store -> compute "o is stored, o + 2 may begin" (o + 1, where a tile of C takes more than
half of the accumulator).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..bfloat16 import to_bits
from ..config import Accelerator
from .bands import rows_reached
from .check import ITEMSIZE
from .isa import (
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    Conv,
    Gemm,
    Instruction,
    Load,
    LoadConstant,
    LoadWindows,
    Reduce,
    SparseGemm,
    Store,
    Vector,
)  # fmt: skip
from .layer import GemmLayer, Matrix, Step, Windows
from .problem import GemmProblem
from .sparse import compress, sparse_bytes
from .tiling import Tiling, buffer_counts, loop_extents, slot_bytes, sum_buffers


@dataclass(frozen=True)
class _Position:
    """One step: its number, batch element, begin and end of the tile, and where it is among the steps along k."""

    step: int
    output: int
    batch: int
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    part: int
    is_first: bool
    is_last: bool


class _Slot:
    """Buffers of the scratchpad for tiles of one operand, each with a mark of what was loaded to it last.

    Whatever is loaded goes to the buffer that was used longest ago, which with two or more is none of the last step's.

    Attributes:
        address: of the current buffer.
    """

    def __init__(self, base: int, size: int, count: int) -> None:
        self._held: dict[Any, int] = {object(): base + at * size for at in range(count)}
        self.address = base

    def claim(self, mark: Any) -> bool:
        """Whether that has to be loaded; its buffer is current from now on."""
        known = mark in self._held
        self.address = self._held.pop(mark if known else next(iter(self._held)))
        self._held[mark] = self.address
        return not known


class LayerCode:
    """Code of one layer with one tiling.

    Args:
        hardware: what it is for.
        layer, problem, tiling: what to do, what that amounts to, and how.
        tensors: index of each tensor, by name.
        add_constant: takes packed values, gives their index.
    """

    def __init__(
        self, hardware: Accelerator, layer: GemmLayer, problem: GemmProblem, tiling: Tiling,
        tensors: Mapping[str, int], add_constant: Callable[[np.ndarray], int],
    ) -> None:  # fmt: skip
        self._layer, self._problem, self._tiling = layer, problem, tiling
        self._is_bfloat16 = hardware.dtype == "bfloat16"
        self._tensors, self._add_constant = tensors, add_constant
        self._tile = (tiling.m, tiling.k, tiling.n)
        self._extents = loop_extents(self._problem, self._tile)
        self._slots: dict[str, _Slot] = {}
        base, counts = 0, buffer_counts(self._problem, self._tile, tiling.stays)
        for name, size in slot_bytes(self._problem, hardware, self._tile).items():
            self._slots[name] = _Slot(base, size, counts[name])
            base += counts[name] * size
        self._half_accumulator = hardware.accumulator_bytes // 8
        self._sum_buffers = sum_buffers(hardware, self._tile)
        self._b_offsets: dict[tuple[int, ...], int] = {}
        self._b_constant = self._pack_b() if isinstance(layer.b, np.ndarray) else -1
        self._row_offsets: dict[tuple[int, int], int] = {}
        self._row_constant = self._pack_rows() if self._problem.rows else -1

    def instructions(self) -> list[Instruction]:
        """In the order in which a machine without queues could run them too."""
        steps = [(position, self._loads(position), self._work(position)) for position in self._positions()]
        has_loads = [bool(loads) for _, loads, _ in steps] + [False, False]
        outputs = steps[-1][0].output + 1
        code: list[Instruction] = []
        for position, loads, work in steps:
            _add_tokens(loads, POP_NEXT if position.step >= 2 else 0, PUSH_NEXT)
            pops = POP_PREV if loads else 0  # nothing to wait for where all operands are those of the step before
            pops |= POP_NEXT if position.is_first and position.output >= self._sum_buffers else 0
            pushes = PUSH_PREV if has_loads[position.step + 2] else 0
            _add_tokens(work, pops, pushes | (PUSH_NEXT if position.is_last else 0))
            stores: list[Instruction] = [self._store(position)] if position.is_last else []
            _add_tokens(stores, POP_PREV, PUSH_PREV if position.output + self._sum_buffers < outputs else 0)
            code += [*loads, *work, *stores]
        return code

    def _positions(self) -> Iterator[_Position]:
        layer, order = self._layer, self._tiling.order
        k_tiles = self._extents["k"] // layer.parts
        ranges = [range(self._extents[loop]) for loop in order]
        for step, indices in enumerate(itertools.product(*ranges)):
            at = dict(zip(order, indices, strict=True))
            part, k_index = divmod(at["k"], k_tiles)
            m, k, n = (
                (index * size, min((index + 1) * size, whole))
                for index, size, whole in zip(
                    (at["m"], k_index, at["n"]), self._tile, (layer.m, layer.k, layer.n), strict=True
                )
            )
            first, last = at["k"] == 0, at["k"] == self._extents["k"] - 1
            yield _Position(step, step // self._extents["k"], at["b"], m, n, k, part, first, last)

    def _loads(self, position: _Position) -> list[Instruction]:
        layer, slots = self._layer, self._slots
        loads: list[Instruction] = []
        if slots["a"].claim((layer.a.index(position.batch), position.m, self._a_columns(position))):
            loads.append(self._load_a(position))
        if layer.b is not None and slots["b"].claim(
            (self._b_index(position.batch), position.part, position.k, position.n)
        ):
            loads.append(self._load_b(position))
        if position.is_last:
            row_key = (position.batch % self._problem.row_batches, position.n[0])
            if self._problem.rows and slots["rows"].claim(row_key):
                loads.append(self._load_rows(position, row_key))
            if self._problem.tile_bytes and slots["tiles"].claim(position.output):
                loads += self._load_tiles(position)
        return loads

    def _a_columns(self, position: _Position) -> tuple[int, int]:
        """Begin and end of the columns of A; for the vector unit each column of C has k of its own."""
        if not self._layer.reduce:
            return position.k
        return position.n[0] * self._layer.k, position.n[1] * self._layer.k

    def _load_a(self, position: _Position) -> Instruction:
        a, address, (begin, end) = self._layer.a, self._slots["a"].address, self._a_columns(position)
        if self._problem.image is not None:
            return self._load_image(position)
        if isinstance(a, Matrix):
            return self._load("a", a, address, position.batch, position.m, (begin, end))
        geometry = a.geometry
        return LoadWindows(
            self._tensors[a.tensor], address, position.m[1] - position.m[0], end - begin, a.row + position.m[0], begin,
            a.offset(position.batch), geometry.channels, *geometry.size, *geometry.out_size, *geometry.kernel,
            *geometry.strides, *geometry.dilation, *geometry.padding[:2], a.pad_value,
        )  # fmt: skip

    def _load_image(self, position: _Position) -> Load:
        """A as a row-stationary array has it: channels by pixels, of the rows of an image that the tile reads."""
        a, address, (begin, end) = self._layer.a, self._slots["a"].address, position.k
        if isinstance(a, Matrix):
            turned = replace(a, row_stride=a.col_stride, col_stride=a.row_stride)
            return self._load("a", turned, address, position.batch, (begin, end), position.m)
        (height, width), taps = a.geometry.size, a.geometry.kernel[0] * a.geometry.kernel[1]
        (first, last), channel = self._image_rows(a, position)[:2], begin // taps
        sizes = (end - begin) // taps, (last - first) * width
        offset = a.offset(position.batch) + (channel * height + first) * width
        return Load("a", self._tensors[a.tensor], address, *sizes, offset, height * width, 1)

    def _image_rows(self, a: Windows, position: _Position) -> tuple[int, int, int]:
        """Begin and end of the rows of the image that a tile reads, and rows of padding above them."""
        width = a.geometry.out_size[1]
        first, last = rows_reached(a, *((a.row + row) // width for row in position.m))
        return max(0, first), min(a.geometry.size[0], last), max(0, -first)

    def _load_b(self, position: _Position) -> Instruction:
        b, address = self._layer.b, self._slots["b"].address
        if isinstance(b, Matrix):
            return self._load("b", b, address, position.batch, position.k, position.n)
        key = (self._b_index(position.batch), position.part, position.k[0], position.n[0])
        rows, cols = position.k[1] - position.k[0], position.n[1] - position.n[0]
        if self._problem.is_sparse:
            rows, cols = 1, sparse_bytes(rows, cols)
        return LoadConstant("b", self._b_constant, address, rows, cols, self._b_offsets[key])

    def _b_index(self, batch: int) -> int:
        b = self._layer.b
        return b.index(batch) if isinstance(b, Matrix) else batch % self._problem.b_batches

    def _load_rows(self, position: _Position, key: tuple[int, int]) -> Instruction:
        cols = position.n[1] - position.n[0]
        offset = self._row_offsets[key]
        return LoadConstant(
            "epilogue", self._row_constant, self._slots["rows"].address, self._problem.rows, cols, offset
        )

    def _load_tiles(self, position: _Position) -> list[Instruction]:
        return [
            self._load("epilogue", step.tile, address, position.batch, position.m, position.n)
            for step, address in self._operands(position)
            if step.tile is not None
        ]

    def _load(
        self, operand: str, matrix: Matrix, address: int, batch: int, rows: tuple[int, int], cols: tuple[int, int]
    ) -> Load:
        sizes = (rows[1] - rows[0], cols[1] - cols[0])
        offset = matrix.at(batch, rows[0], cols[0])
        tensor = self._tensors[matrix.tensor]
        return Load(operand, tensor, address, *sizes, offset, matrix.row_stride, matrix.col_stride)

    def _operands(self, position: _Position) -> Iterator[tuple[Any, int]]:
        """Each step of the epilogue with the address of its operand."""
        row_address, tile_address = self._slots["rows"].address, self._slots["tiles"].address
        m, n = position.m[1] - position.m[0], position.n[1] - position.n[0]
        wide_first = sorted(
            (step for step in self._layer.steps if step.tile is not None), key=lambda step: -ITEMSIZE[step.dtype]
        )
        tile_addresses = {}
        for step in wide_first:  # so that each is aligned to its own size
            tile_addresses[id(step)] = tile_address
            tile_address += m * n * ITEMSIZE[step.dtype]
        for step in self._layer.steps:
            if step.source == "row":
                yield step, row_address
                row_address += 4 * n
            else:
                yield step, tile_addresses.get(id(step), 0)

    def _work(self, position: _Position) -> list[Instruction]:
        c = position.output % self._sum_buffers * self._half_accumulator
        m, k, n = (end - begin for begin, end in (position.m, position.k, position.n))
        addresses = (self._slots["a"].address, self._slots["b"].address, c)
        more, reduce = int(not position.is_first), self._layer.reduce
        work: list[Instruction] = []
        if reduce:
            work.append(Reduce(reduce, more, *addresses, m, n, k))
        elif self._problem.image is not None:
            work.append(self._conv(position, Conv(more, *addresses, n, k, 1, m, 1, m)))
        else:
            kind = SparseGemm if self._problem.is_sparse else Gemm
            work.append(kind(self._tiling.dataflow, more, *addresses, m, k, n))
        if position.is_last:
            work += [_vector(step, c, (m, n), address) for step, address in self._operands(position)]
        return work

    def _conv(self, position: _Position, gemm: Conv) -> Conv:
        """The convolution of a tile, made of that for the GEMM of its im2col matrix."""
        a = self._layer.a
        if isinstance(a, Matrix):
            return gemm
        geometry, (first, last, pad_top) = a.geometry, self._image_rows(a, position)
        width = geometry.out_size[1]
        return Conv(
            gemm.accumulate, gemm.a, gemm.b, gemm.c, gemm.n, gemm.channels // (geometry.kernel[0] * geometry.kernel[1]),
            last - first, geometry.size[1], gemm.out_width // width, width, *geometry.kernel, *geometry.strides,
            *geometry.dilation, pad_top, geometry.padding[1], a.pad_value,
        )  # fmt: skip

    def _store(self, position: _Position) -> Instruction:
        out = self._layer.out
        sizes = (position.m[1] - position.m[0], position.n[1] - position.n[0])
        offset = out.at(position.batch, position.m[0], position.n[0])
        c = position.output % self._sum_buffers * self._half_accumulator
        return Store(self._tensors[out.tensor], c, *sizes, offset, out.row_stride, out.col_stride)

    def _pack_b(self) -> int:
        """Weights in the order of their tiles, each dense: a tile is one transfer of consecutive bytes."""
        values, at = self._layer.b, 0
        assert isinstance(values, np.ndarray)
        values = to_bits(values) if self._is_bfloat16 else values
        matrices = values.reshape(values.shape[0], self._layer.parts, self._layer.k, self._layer.n)
        pieces = []
        for batch, part in itertools.product(range(matrices.shape[0]), range(self._layer.parts)):
            for k in range(0, self._layer.k, self._tile[1]):
                for n in range(0, self._layer.n, self._tile[2]):
                    piece = matrices[batch, part, k : k + self._tile[1], n : n + self._tile[2]]
                    self._b_offsets[batch, part, k, n] = at
                    pieces.append(compress(piece) if self._problem.is_sparse else piece.ravel())
                    at += pieces[-1].size
        return self._add_constant(np.concatenate(pieces))

    def _pack_rows(self) -> int:
        """Row operands as words, for each tile of n those of all steps behind each other: one transfer."""
        layer, shape, at = self._layer, (self._problem.row_batches, self._layer.n), 0
        rows = [np.broadcast_to(step.row, shape) for step in layer.steps if step.row is not None]
        words = np.stack([np.ascontiguousarray(row).view(np.int32) for row in rows], axis=1)
        pieces = []
        for batch in range(shape[0]):
            for n in range(0, layer.n, self._tile[2]):
                piece = words[batch, :, n : n + self._tile[2]]
                self._row_offsets[batch, n] = at
                pieces.append(piece.ravel())
                at += piece.size
        return self._add_constant(np.concatenate(pieces))


def _vector(step: Step, c: int, sizes: tuple[int, int], address: int) -> Vector:
    """A step on a tile of C, its operand in the scratchpad; numbers as float32 has them."""
    scale, low = (float(np.float32(number)) for number in (step.scale, step.low))
    return Vector(step.op, c, *sizes, step.source, address, step.dtype, scale, step.zero_point, low)


def _add_tokens(code: list[Instruction], pops: int, pushes: int) -> None:
    """The first instruction waits, the last one tells.

    They are set in place: nobody else has them yet, and a copy would take as long as making them did.
    """
    if code:
        object.__setattr__(code[0], "tokens", code[0].tokens | pops)
        object.__setattr__(code[-1], "tokens", code[-1].tokens | pushes)
