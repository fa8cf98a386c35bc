"""Products of tile registers: Intel AMX.

    acc (M, 16) += a (M, K) x b (K, 16)        bfloat16 into float32, or bytes into int32; K in groups of 32 bits

bfloat16 numbers below 2^-126 are taken for zero.

A tile register has up to 16 rows of 64 bytes; a group of 32 bits in a row of a meets the row of b of that number:
b[k, n] is the group k of column n. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

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


class Tiles:
    """The tile registers of one thread; each method adds statements to the function that is being built.

    Each thread configures its own, and gives them back: a thread that holds tiles makes Linux save 8 KiB more at each
    switch.
    """

    def __init__(self, product: Product, registers: Registers) -> None:
        self.product, self.registers = product, registers

    def begin(self) -> None:
        """What a thread does before it uses tiles."""
        bytes_of = tile_configuration(self.registers.shapes)
        config = own_buffer("config", (len(bytes_of),), "uint8", "local")
        zeros = tirx.Broadcast(tirx.const(0, "uint8"), len(bytes_of))
        T.buffer_store(config, zeros, [tirx.Ramp(0, 1, len(bytes_of))])
        for at, value in enumerate(bytes_of):
            if value:
                T.buffer_store(config, tirx.const(value, "uint8"), [at])
        tile_instruction("ldtilecfg", T.address_of(config[0]))

    def end(self) -> None:
        """What a thread does when it is done with them."""
        tile_instruction("tilerelease")

    def zero(self, tile: int) -> None:
        """All zeros."""
        tile_instruction("tilezero", tile)

    def load(self, tile: int, element: Element, stride: int, streamed: bool = False) -> None:
        """An operand or accumulator, from rows that are `stride` bytes apart.

        Args:
            streamed: whether the rows need not stay in L1.
        """
        name = "tileloaddt164" if streamed else "tileloadd64"
        tile_instruction(name, tile, T.address_of(element(0, 0)), tirx.const(stride, "int64"))

    def load_row(self, tile: int, element: Element) -> None:
        """An accumulator whose rows are all equal, from the bytes of one row of int32: `element(0, byte)`."""
        self.load(tile, element, 0)

    def store(self, tile: int, buffer: Any, index: Callable[[Any, Any], Sequence[Any]], stride: int) -> None:
        """An accumulator, into rows that are `stride` bytes apart; `index(row, column)` is where an element goes."""
        address = T.address_of(tirx.BufferLoad(buffer, list(index(0, 0))))
        tile_instruction("tilestored64", tile, address, tirx.const(stride, "int64"))

    def prefetch(self, buffer: Any, index: Sequence[Any]) -> None:
        """Asks for the cache line of an element, into L2; the index may be one beyond the buffer."""
        T.evaluate(prefetch(buffer, index))

    def multiply(self, accumulator: int, left: int, right: int) -> None:
        """accumulator += left x right."""
        tile_instruction(self.product.instruction, accumulator, left, right)


def as_bits(value: Any) -> Any:
    """A bfloat16 as the 16 bits that it is, any other number as it is."""
    return tirx.reinterpret("uint16", value) if dtype_of(value) == "bfloat16" else value
