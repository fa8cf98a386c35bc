"""Designs of the blocked recipes: every sampled schedule computes what the unscheduled kernel does."""

import numpy as np
import pytest
from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine
from tvm_ext.core.records.schedule_database import normalized
from tvm_ext.schedules.blocked.kernel import registers_used
from tvm_ext.schedules.recipes.softmax import Softmax
from tvm_ext.tuning.metaschedule.context import space_of
from tvm_ext.tuning.metaschedule.designs import designs_of

from .in_process import operands, run
from .kernels_to_tune import BLOCKED, blocked_workload

MACHINE = Machine.detect(None, 2)


def spaces_of(name: str, machine: Machine = MACHINE, seed: int = 11) -> tuple[Schedule, list[Schedule]]:
    """(the unscheduled kernel, one schedule a design)."""
    workload = blocked_workload(name, machine)
    sch = Schedule(normalized(workload.function), seed=seed)
    spaces = []
    for design in workload.designs:
        space = space_of([design], seed).generate_design_space(sch.mod)
        spaces += list(space)
    return sch, spaces


@pytest.mark.parametrize("name", BLOCKED)
def test_each_design_computes_the_kernel(name: str) -> None:
    sch, spaces = spaces_of(name)
    assert spaces
    arguments = operands(sch.mod["main"])
    expected = run(sch.mod, arguments, MACHINE.target())
    for space in spaces:
        got = run(space.mod, arguments, MACHINE.target())
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


def test_tiles_and_unrolling_are_sampled() -> None:
    _, spaces = spaces_of("conv2d_nchwc")
    kinds = [inst.kind.name for inst in spaces[0].trace.insts]
    assert kinds.count("SamplePerfectTile") == 2
    assert kinds.count("SampleCategorical") == 1


def test_each_way_to_share_threads_is_a_design_of_its_own() -> None:
    machine = Machine.detect("skylake-avx512", 2)  # nothing runs; fewer registers leave fewer designs with a tile
    _, one = spaces_of("conv2d_nchwc", machine.with_threads(1))
    _, two = spaces_of("conv2d_nchwc", machine)
    assert len(blocked_workload("conv2d_nchwc", machine).designs) > len(two) >= len(one) > 0


def test_other_recipes_have_no_designs() -> None:
    assert designs_of(Softmax(), None, {}, MACHINE) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["conv2d_nchwc", "dense"])
def test_whatever_is_sampled_stays_in_registers(name: str) -> None:
    for seed in range(20, 25):
        for space in spaces_of(name, seed=seed)[1]:
            tiles = [inst for inst in space.trace.insts if inst.kind.name == "SamplePerfectTile"]
            tile_o, tile_p = (int(space.trace.get_decision(inst)[-1]) for inst in tiles)
            assert registers_used({"tile_o": tile_o, "tile_p": tile_p}) <= MACHINE.registers
