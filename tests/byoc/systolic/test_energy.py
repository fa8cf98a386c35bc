"""Energies: those of hwcomponents against what it says between the figures that are kept, sources, and refusals."""

import json
import math
import statistics
from typing import Any

import pytest

from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.program import program_from_bytes
from tvm_ext.byoc.systolic.config import Accelerator, SystolicOptions
from tvm_ext.byoc.systolic.energy import EnergyTable
from tvm_ext.core.errors import OptionError

from .cases import dense, table_rows

MEMORIES = (1 << 18, 16), (1 << 16, 64)


def test_memories_between_the_figures() -> None:
    """Sizes, ports and nodes drawn at random, each by a run of CACTI."""
    rows = table_rows("hwcomponents_sram.csv")
    assert len(rows) == 24
    ratios = []
    for row in rows:
        memory = int(row["size"]), int(row["port"])
        table = EnergyTable.of_model(f"hwcomponents:{row['node']}nm", memory, memory)
        assert table.scratchpad_byte == table.accumulator_byte
        ratios.append(abs(math.log(table.scratchpad_byte / float(row["picojoules"]))))
    assert statistics.fmean(ratios) < math.log(1.04) and max(ratios) < math.log(1.2)


def test_arithmetic_and_dram_are_those_of_their_papers() -> None:
    """Aladdin, 40 nm: 12.68 pJ of 32 x 32 bits, 0.21 pJ of an adder of 32; LPDDR4: 8 pJ a bit."""
    table = EnergyTable.of_model("hwcomponents:40nm", *MEMORIES)
    assert table.mac_int8 == pytest.approx(12.68 / 16 + 0.21, rel=1e-3) and table.dram_byte == 64
    plain, same = EnergyTable(), EnergyTable.of_model("hwcomponents:45nm", *MEMORIES)
    assert (same.mac_float32, same.mac_bfloat16) == (plain.mac_float32, plain.mac_bfloat16)
    assert EnergyTable.of_model("hwcomponents:45nm:HBM2", *MEMORIES).dram_byte == 8 * 6.25


def test_what_is_larger_takes_more() -> None:
    def figures(node: int, size: int = 1 << 18) -> tuple[float, ...]:
        table = EnergyTable.of_model(f"hwcomponents:{node}nm", (size, 16), MEMORIES[1])
        return table.scratchpad_byte, table.accumulator_byte, table.mac_int8, table.mac_float32

    by_node = [figures(node) for node in (65, 45, 32, 22, 14, 7)]
    assert all(sorted(column, reverse=True) == list(column) for column in zip(*by_node, strict=True))
    by_size = [figures(45, 1 << log)[0] for log in range(13, 23)]
    assert sorted(by_size) == by_size


def test_sizes_are_those_of_the_accelerator() -> None:
    options = SystolicOptions(rows=32, cols=8, dtype="int8", energy="hwcomponents:45nm:DDR3")  # type: ignore[arg-type]
    expected = EnergyTable.of_model("hwcomponents:45nm:DDR3", (1 << 18, 32), (1 << 16, 32))
    assert options.energy == options.accelerator.energy == expected


@pytest.mark.parametrize(
    "energy", ["hwcomponents:28nm", {"source": "it's 3 # of mine"}, {"dram_byte": 9}, {"source": "3"}]
)
def test_the_source_goes_with_the_program(energy: Any) -> None:
    hardware = Accelerator(energy=energy)
    assert Accelerator.from_dict(json.loads(json.dumps(hardware.as_dict()))) == hardware
    program = dense(hardware, (3, 4, 5))
    assert program_from_bytes(program.to_bytes()).accelerator == hardware
    assert assemble(disassemble(program)).accelerator == hardware


def test_sources_say_what_is_whose() -> None:
    assert "but for" not in EnergyTable().source
    assert EnergyTable(vector_op=1.0, dram_byte=2.0).source.endswith("but for vector_op, dram_byte")
    assert EnergyTable(dram_byte=2.0, source="mine").source == "mine"
    told = EnergyTable.of_model("hwcomponents:28nm:HBM3", *MEMORIES).source
    assert all(word in told for word in ("CACTI", "HBM3", "Aladdin", "Horowitz", "28 nm"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"energy": "hwcomponents"}, "a node from 7nm to 65nm"),
        ({"energy": "hwcomponents:90nm"}, "a node from 7nm to 65nm"),
        ({"energy": "hwcomponents:45nm:DDR9"}, "LPDDR4"),
        ({"energy": "accelergy:45nm"}, "accelergy"),
        ({"energy": "hwcomponents:45nm", "scratchpad_bytes": 512}, "a memory of 512 bytes with a port of 16"),
        ({"energy": "hwcomponents:45nm", "cols": 1024}, "1024 has no figure; memories of 1024 to 4194304 bytes with "
                                                        "ports of 4 to 512"),
        ({"energy": {"source": "a;b"}}, "energy.source='a;b'"),
        ({"energy": {"source": 3}}, "energy.source=3"),
        ({"energy": {"source": "a\nb"}}, "energy.source="),
    ],
)  # fmt: skip
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Accelerator.from_dict(settings)
