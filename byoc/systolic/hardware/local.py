"""Loads and stores of tensors that lie in the scratchpad: `width` bytes a clock, without the channel to DRAM.

Outputs of both units are writes to the scratchpad, of each lane, and `done` in the clock of the last bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..code.isa import LoadWindows
from .edges import ADDRESS_BITS
from .queues import ENTRY, UINT8, WORDS
from .records import LOAD, STORE, WINDOWS, is_a, tile_of


class _Move(wiring.Component):
    """The lanes of a move; `read_address` and `read_data` are of what it reads, in elements of so many bits."""

    def __init__(self, width: int, read_bits: int) -> None:
        self._width = width
        addresses, values = data.ArrayLayout(ADDRESS_BITS, width), data.ArrayLayout(8, width)
        reads = {"read_address": Out(addresses), "read_data": In(data.ArrayLayout(read_bits, width))}
        writes = {"write_enable": Out(width), "write_address": Out(addresses), "write_value": Out(values)}
        super().__init__({"active": In(1), "head": In(ENTRY), "done": Out(1), **reads, **writes})

    def _lanes(self, m: Module, tile: Any) -> Iterator[tuple[int, Value, Value]]:
        """(lane, whether it moves a byte in this clock, which one of the tile)."""
        offset, nbytes = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        m.d.comb += nbytes.eq((tile.rows * tile.cols) << Mux(self.head.elements == WORDS, 2, 0))
        m.d.comb += self.done.eq(self.active & (offset + self._width >= nbytes))
        with m.If(self.active):
            m.d.sync += offset.eq(Mux(self.done, 0, offset + self._width))
        for lane in range(self._width):
            byte = Signal(ADDRESS_BITS, name=f"byte_{lane}")
            m.d.comb += [byte.eq(offset + lane), self.write_enable[lane].eq(self.active & (byte < nbytes))]
            yield lane, self.write_enable[lane], byte

    def _address(self, m: Module, index: Value, byte: Value, lane: int) -> Value:
        """In the scratchpad, of a byte of an element of the tensor."""
        address, is_word = Signal(ADDRESS_BITS, name=f"address_{lane}"), self.head.elements == WORDS
        m.d.comb += address.eq(self.head.base + Mux(is_word, (index << 2) + byte[:2], index))
        return address

    def _element(self, byte: Value) -> Value:
        return Mux(self.head.elements == WORDS, byte >> 2, byte)


class LocalLoad(_Move):
    """LOAD and LOAD.WINDOWS, scratchpad to scratchpad."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 8)

    def elaborate(self, _platform: Any) -> Module:
        m, head = Module(), self.head
        load, windows, tile = LOAD(head.record), WINDOWS(head.record), tile_of(head.record)
        for lane, enable, byte in self._lanes(m, tile):
            element, is_padding = self._element(byte), Signal(name=f"is_padding_{lane}")
            index, is_inside = _window(windows, element)
            is_windows = is_a(head.record, LoadWindows)
            address = self._address(m, Mux(is_windows, index, _strided(load, element)), byte, lane)
            value = self.read_data[lane] ^ Mux(head.elements == UINT8, 0x80, 0)
            m.d.comb += [
                is_padding.eq(is_windows & ~is_inside),
                self.read_address[lane].eq(Mux(enable & ~is_padding, address, 0)),
                self.write_address[lane].eq(tile.dst + byte),
                self.write_value[lane].eq(Mux(is_padding, windows.pad_value, value)),
            ]
        return m


class LocalStore(_Move):
    """STORE, accumulator to scratchpad."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 32)

    def elaborate(self, _platform: Any) -> Module:
        m, tile = Module(), STORE(self.head.record)
        for lane, enable, byte in self._lanes(m, tile):
            element = self._element(byte)
            m.d.comb += [
                self.read_address[lane].eq(Mux(enable, tile.c + element, 0)),
                self.write_address[lane].eq(self._address(m, _strided(tile, element), byte, lane)),
                self.write_value[lane].eq(stored_byte(self.read_data[lane], byte, self.head.elements)),
            ]
        return m


def stored_byte(word: Value, byte: Value, elements: Value) -> Value:
    """What a STORE moves of a word of the accumulator: a byte of it, or all of it, saturated."""
    value = word.as_signed()
    saturated = Mux(value < -128, -128, Mux(value > 127, 127, value)) + Mux(elements == UINT8, 128, 0)
    return Mux(elements == WORDS, word.word_select(byte[:2], 8), saturated[:8])


def _strided(tile: Any, element: Value) -> Value:
    """Index in a tensor of an element of a strided tile."""
    return tile.offset + element // tile.cols * tile.row_stride + element % tile.cols * tile.col_stride


def _window(load: Any, element: Value) -> tuple[Value, Value]:
    """Index in a tensor of an element of an im2col tile, and whether it lies inside of the image."""
    row, col = load.row_begin + element // load.cols, load.col_begin + element % load.cols
    taps = load.kernel_height * load.kernel_width
    channel, tap = col // taps, col % taps
    y = row // load.out_width * load.stride_height + tap // load.kernel_width * load.dilation_height - load.pad_top
    x = row % load.out_width * load.stride_width + tap % load.kernel_width * load.dilation_width - load.pad_left
    is_inside = (y >= 0) & (y < load.height) & (x >= 0) & (x < load.width)
    return load.offset + (channel * load.height + y) * load.width + x, is_inside
