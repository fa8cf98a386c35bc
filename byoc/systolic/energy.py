"""Picojoules of operations and bytes: a table of constants, or figures of hwcomponents for the sizes of a memory.

hwcomponents (Andrulis et al., "CiMLoop", ISPASS 2024) takes Python 3.12 and a build of CACTI that fits the system, so
what it says is kept in :mod:`.energy_figures`, at powers of two; between them its logarithms are interpolated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ...core.errors import OptionError, is_number
from .energy_figures import DRAM, LOGIC, MAC_INT8, SRAM

_HOROWITZ = "Horowitz, ISSCC 2014, 45 nm"
_MODEL = re.compile(r"hwcomponents:(\d+(?:\.\d+)?)nm(?::(\w+))?")
_LEAST_NODE, _MOST_NODE = min(LOGIC), max(LOGIC)
_LEAST_SIZE, _LEAST_PORT = 1 << 10, 1 << 2
_LONGEST = 400
_MOST_PICOJOULES = 1e12  # a joule: sums over any program stay finite


@dataclass(frozen=True)
class EnergyTable:
    """Picojoules of one operation or one byte; replace any figure by one of your own technology.

    The defaults are for 45 nm at 0.9 V (Horowitz, "Computing's energy problem", ISSCC 2014, figure 1.1.9): a
    multiply-add is multiplier plus adder; memories are its caches for 64 bits (32 KiB 20 pJ, 1 MiB 100 pJ),
    interpolated to 256 and 64 KiB by the power law between the two; DRAM is the middle of 1.3 to 2.6 nJ. Memories of
    512 bytes in PEs go by the power law of caches of 8 KiB (10 pJ) and 32 KiB, and what is brought to a PE takes twice
    that, as in Eyeriss (Chen, ISCA 2016, table IV: 1 and 2, where its buffer has 6 and DRAM 200). Of bfloat16 it
    is the multiplier of float16, whose significand is longer, and the adder of float32.

    Attributes:
        mac_int8, mac_bfloat16, mac_float32: one multiply-add, by the dtype of its operands.
        vector_op: one element of one operation of the vector unit (a float32 multiply-add).
        scratchpad_byte, accumulator_byte, dram_byte: one byte read or written there.
        spad_byte, network_byte: of row-stationary arrays: one byte read or written in a PE, and one brought to a PE.
            Registers are part of multiply-adds.
        source: where the figures are from, as reports name it.

    Raises:
        OptionError: a figure is no number from 0 to 1e12, or the source no line of text without `;`.
    """

    mac_int8: float = 0.3
    mac_bfloat16: float = 2.0
    mac_float32: float = 4.6
    vector_op: float = 4.6
    scratchpad_byte: float = 6.6
    accumulator_byte: float = 3.4
    dram_byte: float = 244.0
    spad_byte: float = 0.31
    network_byte: float = 0.62
    source: str = _HOROWITZ

    def __post_init__(self) -> None:
        for field in fields(self)[:-1]:
            value = getattr(self, field.name)
            if not is_number(value) or not 0 <= value <= _MOST_PICOJOULES:
                raise OptionError(f"energy.{field.name}={value!r:.80}: picojoules go from 0 to {_MOST_PICOJOULES:g}")
        source = self.source
        if not isinstance(source, str) or not source.isprintable() or ";" in source or len(source) > _LONGEST:
            raise OptionError(f"energy.source={source!r:.80}: a line of text without ; is needed")
        others = [field.name for field in fields(self)[:-1] if getattr(self, field.name) != field.default]
        if source == _HOROWITZ and others:
            object.__setattr__(self, "source", f"{_HOROWITZ}, but for {', '.join(others)}")

    def mac(self, dtype: str) -> float:
        """Picojoules of a multiply-add whose operands have this dtype."""
        return float(getattr(self, f"mac_{dtype}"))

    @classmethod
    def of_model(cls, model: str, scratchpad: tuple[int, int], accumulator: tuple[int, int]) -> EnergyTable:
        """What hwcomponents says at a node: memories by CACTI, the mean of a read and a write; int8 by the designs of
        Aladdin; DRAM a bit at a time. It has no floats: those of Horowitz are scaled as it scales logic.

        Args:
            model: "hwcomponents:45nm", or with a kind of DRAM, "hwcomponents:22nm:HBM2"; LPDDR4 is the default.
            scratchpad, accumulator: bytes of each, and of its port.

        Raises:
            OptionError: there is no such model, node or DRAM, or no figure of a memory of that size.
        """
        parts = _MODEL.fullmatch(model)
        node, dram = (float(parts[1]), parts[2] or "LPDDR4") if parts else (0.0, "")
        if not _LEAST_NODE <= node <= _MOST_NODE or dram not in DRAM:
            what = f"a node from {_LEAST_NODE}nm to {_MOST_NODE}nm and {', '.join(DRAM)} are known"
            raise OptionError(f"energy={model!r}: {what}", fix="as in energy='hwcomponents:45nm:LPDDR4'")
        logic = _between(LOGIC, node)
        told = f"CACTI and {dram} by hwcomponents-cacti 1.0.40, int8 by hwcomponents-library 1.0.58 (Aladdin), "
        return cls(
            logic * MAC_INT8, logic * cls.mac_bfloat16, logic * cls.mac_float32, logic * cls.vector_op,
            _sram(node, *scratchpad), _sram(node, *accumulator), DRAM[dram],
            logic * cls.spad_byte, logic * cls.network_byte,
            f"{told}floats and memories of PEs scaled from {_HOROWITZ}, at {node:g} nm",
        )  # fmt: skip


def _sram(node: float, size: int, port: int) -> float:
    """Picojoules a byte of a memory; below 22 nm they go with the square root of the node, as hwcomponents has it."""
    least = min(SRAM)
    if node < least:
        return _sram(least, size, port) * math.sqrt(node / least)
    row, col = math.log2(size / _LEAST_SIZE), math.log2(port / _LEAST_PORT)
    table = SRAM[least]
    if not (0 <= row <= len(table) - 1 and 0 <= col <= len(table[0]) - 1):
        sizes, ports = (f"{first} to {first << len(of) - 1}" for first, of in
                        ((_LEAST_SIZE, table), (_LEAST_PORT, table[0])))  # fmt: skip
        raise OptionError(
            f"energy by hwcomponents: a memory of {size} bytes with a port of {port} has no figure; memories of "
            f"{sizes} bytes with ports of {ports} have",
            fix="leave energy out, or give a table of your own",
        )
    return round(_between({at: 2 ** _bilinear(SRAM[at], row, col) for at in SRAM}, node), 6)


def _bilinear(table: tuple[tuple[float, ...], ...], row: float, col: float) -> float:
    """The logarithm of a figure between four of a table."""
    (top, down), (left, right) = divmod(row, 1), divmod(col, 1)
    corners = (
        ((1 - down if at == top else down) * (1 - right if to == left else right), table[int(at)][int(to)])
        for at in {top, math.ceil(row)}
        for to in {left, math.ceil(col)}
    )
    return sum(weight * math.log2(figure) for weight, figure in corners)


def _between(figures: Mapping[int, float], node: float) -> float:
    """A figure at a node, linear between those that are known on both sides of it."""
    low, high = max(at for at in figures if at <= node), min(at for at in figures if at >= node)
    share = (node - low) / (high - low) if high > low else 0.0
    return (1 - share) * figures[low] + share * figures[high]
