"""Loops of instructions do the work they are counted for; each call checks its own sums."""

from __future__ import annotations

import re

import pytest

from tests.emulation.execution import MACHINE, tile_instructions
from tests.schedules.narrow import needs
from tvm_ext.benchmarking import instruction_speed
from tvm_ext.benchmarking.instruction_speed import CHAINS, call_of_instruction
from tvm_ext.core.machine import Machine
from tvm_ext.driver.machine_code import code_of
from tvm_ext.schedules.dots import dot_of

DOTS = [pytest.param("vpdpbusd", 4, marks=needs["int8"]), pytest.param("vdpbf16ps", 2, marks=needs["bf16"])]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "group"), DOTS)
def test_dot_products_are_counted(name: str, group: int, threads: int) -> None:
    call, operations = call_of_instruction(Machine.detect(None, threads), name, 1000)
    call()
    assert operations == 2 * 1000 * CHAINS * 16 * group


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "group"), [("tdpbf16ps", 2), ("tdpbusd", 4), ("tdpbssd", 4)])
def test_products_of_tiles_are_counted(name: str, group: int, threads: int) -> None:
    with tile_instructions() as amx:
        call, operations = call_of_instruction(MACHINE.with_threads(threads), name, 24)
        call()
    amx.assert_entered(name, 48)
    assert operations == 2 * 24 * 16 * 16 * 16 * group


@pytest.mark.parametrize(("name", "dtype"), [("vpdpbusd", "uint8"), ("vdpbf16ps", "bfloat16")])
def test_a_loop_has_nothing_but_its_instruction(name: str, dtype: str) -> None:
    """A chain that left its register would measure the cache."""
    dot = dot_of(dtype, "int8" if dtype == "uint8" else dtype)
    assert dot is not None and dot.instruction == name
    machine = Machine.detect("cooperlake", 1)
    text = "\n".join(code_of({"main": instruction_speed._dot_kernel(dot, 1, 1000)}, machine, "asm").values())
    blocks = re.split(r"^\.\w+:", text, flags=re.M)
    (loop,) = (block for block in blocks if name in block)
    found = re.findall(rf"\t{name}\t(.*), %zmm(\d+)", loop)
    assert len({accumulator for _, accumulator in found}) == CHAINS <= len(found)
    assert not re.search(r"\tvmov\w+\t", loop.split("jne")[0].rpartition(f"\t{name}\t")[0].partition(f"\t{name}\t")[2])


def test_an_unknown_instruction_is_named() -> None:
    with pytest.raises(ValueError, match="no instruction 'vmulps': there are vpdpbusd, vdpbf16ps, tdpbf16ps"):
        call_of_instruction(Machine.detect(), "vmulps", 10)
