"""Scratchpad and accumulator memory: a port a lane, read in the clock in which it is asked.

A chip would cut both into banks, with an arrangement of tiles to suit; the instruction set has dense tiles at any
address, for which ports are the plain form. Their bits are counted apart from the cells of the logic.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Shape
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .edges import ADDRESS_BITS


class PortedMemory(wiring.Component):
    """A memory with `ports` that read and write the same address, then `readers` and `writers`.

    Inputs:
        address, enable, write: of each port; `data` is what lies there before this clock writes it.
    """

    def __init__(self, shape: Any, depth: int, ports: int = 0, readers: int = 0, writers: int = 0) -> None:
        self.memory = Memory(shape=shape, depth=depth, init=[])
        self._counts = {"port": ports, "read": readers, "write": writers}
        members: dict[str, Any] = {}
        for kind, count in self._counts.items():
            members[f"{kind}_address"] = In(data.ArrayLayout(ADDRESS_BITS, count))
            if kind != "write":
                members[f"{kind}_data"] = Out(data.ArrayLayout(shape, count))
            if kind != "read":
                members[f"{kind}_enable"] = In(Shape(count))
                members[f"{kind}_value"] = In(data.ArrayLayout(shape, count))
        super().__init__(members)

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        m.submodules.memory = self.memory
        for kind, count in self._counts.items():
            address = getattr(self, f"{kind}_address")
            for lane in range(count):
                if kind != "write":
                    reader = self.memory.read_port(domain="comb")
                    m.d.comb += [reader.addr.eq(address[lane]), getattr(self, f"{kind}_data")[lane].eq(reader.data)]
                if kind != "read":
                    writer = self.memory.write_port()
                    m.d.comb += [
                        writer.addr.eq(address[lane]),
                        writer.data.eq(getattr(self, f"{kind}_value")[lane]),
                        writer.en.eq(getattr(self, f"{kind}_enable")[lane]),
                    ]
        return m
