"""Rates of a machine: instructions and bytes a cycle, measured or published; all that cost models read of its speed.

Rates are per cycle of the clock at which a core multiplies and adds, so that a clock that moves changes none of them,
and lie on a coarse grid, so that two measurements of one machine give the same programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..core.errors import OptionError, is_number

#: Instructions a cycle are one of these.
_PORTS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Octaves between two points of the grid, where it is not one: more for what other guests, or the place of a virtual
#: machine, move from second to second: cores may be neighbours or not, and a launch was 0.17 to 0.38 us on a Zen 4.
_OCTAVES = {
    "clock": 0.25, "l1": 2.0, "l2": 2.0, "l3": 2.0, "l3_all": 2.0, "memory": 2.0, "memory_all": 2.0, "tile_l3": 2.0,
    "foreign": 6.0, "launch": 10.0,
}  # fmt: skip
#: Caches and what lies behind each, of loads into vectors and into tiles.
_NEXT = (("l2", "l3"), ("l1", "l2"), ("tile_l2", "tile_l3"), ("tile_l1", "tile_l2"))
_INSTRUCTIONS = ("fma", "fma_half", "dot_int8", "dot_int16", "dot_bf16")


@dataclass(frozen=True)
class Rates:
    """What a core, or all of them, do in a cycle.

    Attributes:
        clock: GHz of a core that multiplies and adds.
        fma: f32 multiply-adds of whole vectors a cycle.
        fma_half: those of vectors of half the width.
        dot_int8, dot_int16, dot_bf16: products of whole vectors by words of four, two and two numbers a cycle; 0 where
            the CPU has no such instruction. Products of 16-bit numbers are measured where there are none of 8 bits.
        l1, l2, l3, memory: bytes a cycle that one core loads from a level of the hierarchy in a long run.
        l3_all, memory_all: bytes a cycle that `cores` load together.
        foreign: bytes a cycle that a core loads of lines that another core wrote last.
        launch: microseconds until all threads have begun a parallel loop, and joined.
        cores: that `l3_all`, `memory_all` and `launch` are of.
        tile_int8, tile_bf16: cycles of a product of AMX tiles; 0 where the CPU has none.
        tile_l1, tile_l2, tile_l3: bytes a cycle that one core loads into tiles.
    """

    clock: float
    fma: float
    fma_half: float
    l1: float
    l2: float
    l3: float
    memory: float
    l3_all: float
    memory_all: float
    foreign: float
    launch: float
    cores: int
    dot_int8: float = 0.0
    dot_int16: float = 0.0
    dot_bf16: float = 0.0
    tile_int8: float = 0.0
    tile_bf16: float = 0.0
    tile_l1: float = 0.0
    tile_l2: float = 0.0
    tile_l3: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not is_number(value) or value < 0 or (value == 0 and name in _POSITIVE):
                raise OptionError(f"rates: {name}={value!r}: a number above 0 is needed", fix=f"in {_UNITS}")

    @staticmethod
    def of(values: Mapping[str, Any]) -> Rates:
        """From plain values, as :meth:`as_dict` gives them.

        Raises:
            OptionError: a field is missing or unknown, or no number above 0.
        """
        known = {field.name for field in fields(Rates)}
        if unknown := set(values) - known:
            fix = f"choose from {', '.join(sorted(known))}"
            raise OptionError(f"rates: unknown {', '.join(sorted(unknown))}", fix=fix)
        if missing := _POSITIVE - set(values):
            raise OptionError(f"rates: {', '.join(sorted(missing))} missing", fix=f"give numbers in {_UNITS}")
        return Rates(**values)

    def on_grid(self, anchor: Rates) -> Rates:
        """The nearest rates of a coarse grid: each is that of the anchor, or whole steps from it.

        Args:
            anchor: rates of a machine like this one. Instructions a cycle are the ports of the processor, and the clock
                and a launch are the anchor's if near it. A cache is no slower than the next one, if it was not.
        """
        values: dict[str, Any] = {"cores": self.cores}
        for field in fields(Rates):
            value, near = getattr(self, field.name), getattr(anchor, field.name)
            if field.name in _INSTRUCTIONS:
                values[field.name] = _port(value)
            elif field.name != "cores":
                values[field.name] = _stepped(value, near, _OCTAVES.get(field.name, 1.0))
        for level, behind in (("l3", "memory"), *_NEXT):
            if getattr(self, level) >= getattr(self, behind):  # rounding makes no cache slower than what lies behind it
                values[level] = max(values[level], values[behind])
        return Rates(**values)

    @property
    def hertz(self) -> float:
        """Cycles a second of a core that multiplies and adds."""
        return self.clock * 1e9

    def as_dict(self) -> dict[str, float]:
        """Plain values for JSON; what is 0 is left out."""
        return {name: value for name, value in asdict(self).items() if value}

    def shared(self, level: str, threads: int) -> float:
        """Bytes a cycle that each of so many threads loads at once from "l1", "l2", "l3" or "memory".

        L1 and L2 are a core's own. What lies behind serves several until it is saturated: one thread gets its own rate,
        all of them together what they were measured at.
        """
        alone = float(getattr(self, level))
        together = float(getattr(self, f"{level}_all", math.inf))
        return min(alone, together / threads)


_POSITIVE = {
    "clock", "fma", "fma_half", "l1", "l2", "l3", "memory", "l3_all", "memory_all", "foreign", "launch", "cores",
}  # fmt: skip
_UNITS = "GHz (clock), instructions (fma, fma_half), bytes (l1 to memory_all, foreign) a cycle, microseconds (launch)"


def _stepped(value: float, anchor: float, step: float) -> float:
    """The anchor, or the nearest of it times powers of 2^step, of three significant digits; 0 stays."""
    if not value:
        return 0.0
    origin = anchor or 1.0
    steps = round(math.log2(value / origin) / step)
    return float(f"{origin * 2 ** (step * steps):.3g}") if steps else origin


def _port(value: float) -> float:
    return min(_PORTS, key=lambda port: abs(math.log2(port / value))) if value else 0.0
