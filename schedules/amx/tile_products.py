"""Products of tile registers: Intel AMX, and plain loops that compute the same.

    acc (M, 16) += a (M, K) x b (K, 16)        bfloat16 into float32, or bytes into int32; K in groups of 32 bits

Kernels are written once, over :class:`Tiles`. :class:`AmxTiles` has the CPU's instructions; :class:`PlainTiles` keeps
registers in arrays, adds in the same order, and runs anywhere: the two give equal bits, but for bfloat16 numbers below
2^-126, which AMX takes for zero.

A tile register has up to 16 rows of 64 bytes; a group of 32 bits in a row of a meets the row of b of that number:
b[k, n] is the group k of column n. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.ops.scalars.expressions import dtype_of
from tvm_ext.rates.instructions import COLUMNS, Product, tile_configuration, tile_instruction

from ..blocked.prefetch import prefetch
from ..steps.nests import own_buffer

Element = Callable[[Any, Any], Any]
"""(row, column) -> the load of an element of a buffer; rows are at a constant distance in memory."""


@dataclass(frozen=True)
class Registers:
    """Which tile registers hold what: `pixels` x `outputs` accumulators, then the operands.

    Attributes:
        pixels, outputs: tiles of either side.
        rows: of an accumulator and of a left operand.
        depth: groups of 32 bits in a row of a left operand, which are the rows of a right one.
    """

    pixels: int
    outputs: int
    rows: int
    depth: int

    @property
    def count(self) -> int:
        return self.pixels * self.outputs + self.pixels + self.outputs

    def accumulator(self, pixel: int, output: int) -> int:
        return pixel * self.outputs + output

    def left(self, pixel: int) -> int:
        return self.pixels * self.outputs + pixel

    def right(self, output: int) -> int:
        return self.pixels * self.outputs + self.pixels + output

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(rows, bytes a row) of each register in use."""
        accumulator, left, right = (self.rows, 4 * COLUMNS), (self.rows, 4 * self.depth), (self.depth, 4 * COLUMNS)
        return [accumulator] * (self.pixels * self.outputs) + [left] * self.pixels + [right] * self.outputs


class Tiles(abc.ABC):
    """The tile registers of one thread; each method adds statements to the function that is being built."""

    def __init__(self, product: Product, registers: Registers) -> None:
        self.product, self.registers = product, registers

    @abc.abstractmethod
    def begin(self) -> None:
        """What a thread does before it uses tiles."""

    @abc.abstractmethod
    def end(self) -> None:
        """What a thread does when it is done with them."""

    @abc.abstractmethod
    def zero(self, tile: int) -> None:
        """All zeros."""

    @abc.abstractmethod
    def load(self, tile: int, element: Element, stride: int, streamed: bool = False) -> None:
        """An operand or accumulator, from rows that are `stride` bytes apart.

        Args:
            streamed: whether the rows need not stay in L1.
        """

    @abc.abstractmethod
    def load_row(self, tile: int, element: Element) -> None:
        """An accumulator whose rows are all equal, from the bytes of one row of int32: `element(0, byte)`."""

    @abc.abstractmethod
    def store(self, tile: int, buffer: Any, index: Callable[[Any, Any], Sequence[Any]], stride: int) -> None:
        """An accumulator, into rows that are `stride` bytes apart; `index(row, column)` is where an element goes."""

    @abc.abstractmethod
    def prefetch(self, buffer: Any, index: Sequence[Any]) -> None:
        """Asks for the cache line of an element, into L2; the index may be one beyond the buffer."""

    @abc.abstractmethod
    def multiply(self, accumulator: int, left: int, right: int) -> None:
        """accumulator += left x right."""


class AmxTiles(Tiles):
    """The CPU's registers. Each thread configures its own, and gives them back: a thread that holds tiles makes Linux
    save 8 KiB more at each switch."""

    def begin(self) -> None:
        bytes_of = tile_configuration(self.registers.shapes)
        config = own_buffer("config", (len(bytes_of),), "uint8", "local")
        zeros = tirx.Broadcast(tirx.const(0, "uint8"), len(bytes_of))
        T.buffer_store(config, zeros, [tirx.Ramp(0, 1, len(bytes_of))])
        for at, value in enumerate(bytes_of):
            if value:
                T.buffer_store(config, tirx.const(value, "uint8"), [at])
        tile_instruction("ldtilecfg", T.address_of(config[0]))

    def end(self) -> None:
        tile_instruction("tilerelease")

    def zero(self, tile: int) -> None:
        tile_instruction("tilezero", tile)

    def load(self, tile: int, element: Element, stride: int, streamed: bool = False) -> None:
        name = "tileloaddt164" if streamed else "tileloadd64"
        tile_instruction(name, tile, T.address_of(element(0, 0)), tirx.const(stride, "int64"))

    def load_row(self, tile: int, element: Element) -> None:
        self.load(tile, element, 0)

    def store(self, tile: int, buffer: Any, index: Callable[[Any, Any], Sequence[Any]], stride: int) -> None:
        address = T.address_of(tirx.BufferLoad(buffer, list(index(0, 0))))
        tile_instruction("tilestored64", tile, address, tirx.const(stride, "int64"))

    def prefetch(self, buffer: Any, index: Sequence[Any]) -> None:
        T.evaluate(prefetch(buffer, index))

    def multiply(self, accumulator: int, left: int, right: int) -> None:
        tile_instruction(self.product.instruction, accumulator, left, right)


class PlainTiles(Tiles):
    """Registers in arrays."""

    def begin(self) -> None:
        p, r = self.product, self.registers
        groups = ((r.pixels * r.outputs, p.result, 1), (r.pixels, p.left, p.group), (r.outputs, p.right, p.group))
        kinds = [(_computed(dtype), group) for count, dtype, group in groups for _ in range(count)]
        self._arrays = [
            own_buffer(f"tile{i}", (rows, row_bytes // 4 * group), dtype, "local")
            for i, ((rows, row_bytes), (dtype, group)) in enumerate(zip(r.shapes, kinds, strict=True))
        ]

    def end(self) -> None:
        pass

    def zero(self, tile: int) -> None:
        self._fill(tile, lambda m, n: tirx.const(0, self.product.result))

    def load(self, tile: int, element: Element, stride: int, streamed: bool = False) -> None:
        self._fill(tile, element)

    def load_row(self, tile: int, element: Element) -> None:
        def number(m: Any, n: Any) -> Any:
            low = [element(0, 4 * n + i).astype("int32") & tirx.const(255, "int32") for i in range(3)]
            high = element(0, 4 * n + 3).astype("int32")
            return low[0] + low[1] * 256 + low[2] * 65536 + high * 16777216

        self._fill(tile, number)

    def _fill(self, tile: int, value: Element) -> None:
        array = self._arrays[tile]
        rows, columns = (int(d) for d in array.shape)
        with T.serial(rows) as m, T.serial(columns) as n:
            T.buffer_store(array, _number(value(m, n)), [m, n])

    def store(self, tile: int, buffer: Any, index: Callable[[Any, Any], Sequence[Any]], stride: int) -> None:
        with T.serial(self.registers.rows) as m, T.serial(COLUMNS) as n:
            T.buffer_store(buffer, self._arrays[tile][m, n], list(index(m, n)))

    def prefetch(self, buffer: Any, index: Sequence[Any]) -> None:
        """Nothing: it changes no value."""

    def multiply(self, accumulator: int, left: int, right: int) -> None:
        """In the manual's order: of floats, the first and the second elements of all groups are summed apart."""
        p, (c, a, b) = self.product, (self._arrays[i] for i in (accumulator, left, right))
        apart = p.group if p.result == "float32" else 1
        sums = own_buffer("sums", (apart, COLUMNS), p.result, "local")
        with T.serial(self.registers.rows) as m:
            with T.serial(apart) as i, T.vectorized(COLUMNS) as n:
                T.buffer_store(sums, tirx.const(0, p.result), [i, n])
            with T.serial(self.registers.depth) as k, T.unroll(p.group) as i, T.serial(COLUMNS) as n:
                x, y = a[m, k * p.group + i].astype(p.result), b[k, n * p.group + i].astype(p.result)
                at = i if apart > 1 else 0
                T.buffer_store(sums, sums[at, n] + x * y, [at, n])
            with T.vectorized(COLUMNS) as n:
                total = sums[0, n] + sums[1, n] if apart > 1 else sums[0, n]
                T.buffer_store(c, c[m, n] + total, [m, n])


def as_bits(value: Any) -> Any:
    """A bfloat16 as the 16 bits that it is, any other number as it is."""
    return tirx.reinterpret("uint16", value) if dtype_of(value) == "bfloat16" else value


def _number(value: Any) -> Any:
    """Of a bfloat16, or its bits, the float32; any other number as it is."""
    bits = as_bits(value)
    return tirx.reinterpret("float32", bits.astype("uint32") << 16) if dtype_of(bits) == "uint16" else value


def _computed(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype
