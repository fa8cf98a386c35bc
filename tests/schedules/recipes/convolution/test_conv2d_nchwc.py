"""Direct convolution against float64, on several instruction sets."""

import math
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.blocked import kernel as blocked
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc

from ...convolutions import check_against, conv_group, reference
from ...kernels import ROUNDOFF, drawn_points, make_group, matched, random, run_kernel, scheduled

RECIPE = Conv2dNCHWc()


CASES = {
    "3x3": ((1, 16, 14, 14), (32, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3 stride 2": ((1, 8, 15, 13), (16, 8, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "1x1": ((1, 24, 7, 7), (40, 24, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "1x1 stride 2": ((1, 16, 14, 14), (24, 16, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    "stem": ((1, 3, 37, 41), (16, 3, 7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    "prime channels": ((1, 13, 11, 5), (17, 13, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "one channel, one pixel": ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "batch 3": ((3, 5, 6, 7), (9, 5, 3, 2), (1, 1), (1, 0, 1, 0), (1, 1)),
    "asymmetric padding": ((1, 8, 9, 9), (8, 8, 3, 3), (2, 1), (0, 1, 2, 0), (1, 1)),
    "dilated": ((1, 8, 12, 12), (8, 8, 3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    "long reduction": ((1, 64, 7, 7), (16, 64, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
}


def group_of(case: str, residual: bool = False) -> Any:
    x_shape, w_shape, strides, padding, dilation = CASES[case]
    return conv_group(x_shape, w_shape, residual=residual, strides=strides, padding=padding, dilation=dilation)


def check(case: str, machine: Machine, rng: np.random.Generator, residual: bool = False, config: Any = None) -> None:
    x_shape, w_shape, *attrs = CASES[case]
    group = group_of(case, residual)
    offered = [Layout.blocked(4, machine.lanes) if x_shape[1] > 4 else Layout.plain(4)]
    offered += [Layout.plain(len(p.shape)) for p in group.params[1:]]
    terms = math.prod(w_shape[1:])
    check_against(lambda x, w: reference(x, w, *attrs), terms, RECIPE, group, machine, rng, config, offered)


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng)


@pytest.mark.parametrize("case", ["3x3", "prime channels", "batch 3", "stem"])
def test_residual(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng, residual=True)


@pytest.mark.parametrize("case", ["3x3", "prime channels", "batch 3", "long reduction"])
def test_points_of_the_space_agree(case: str, rng: np.random.Generator) -> None:
    """Tiles that do not divide, pixels in parts, the reduction in chunks, more threads than units."""
    machine = Machine.detect(None, 3)
    for config in drawn_points(RECIPE, group_of(case), machine, rng, 6):
        check(case, machine, rng, config={**config, "threads": 3})


def test_reads_a_few_plain_channels_where_they_are(machine: Machine) -> None:
    group = conv_group((1, 3, 8, 8), (8, 3, 3, 3))
    match = matched(RECIPE, group, machine)
    offered = [Layout.plain(len(p.shape)) for p in group.params]
    assert RECIPE.layouts(match, RECIPE.default(match, machine), offered).params[0].is_plain


def test_wants_channels_in_blocks(machine: Machine) -> None:
    group = conv_group((1, 16, 8, 8), (16, 16, 3, 3))
    match = matched(RECIPE, group, machine)
    offered = [Layout.plain(len(p.shape)) for p in group.params]
    layouts = RECIPE.layouts(match, RECIPE.default(match, machine), offered)
    assert layouts.params[0] == layouts.output == Layout.blocked(4, machine.lanes)


def test_blocks_are_half_as_wide_where_that_wastes_less() -> None:
    """On a CPU whose widest vectors take two passes, 24 outputs are 3 vectors of 8 rather than 2 of 16."""
    lanes = {}
    for cpu in ("znver4", "skylake-avx512"):
        for outputs in (24, 96):
            match = matched(RECIPE, conv_group((1, 16, 8, 8), (outputs, 16, 1, 1)), Machine.detect(cpu, 1))
            lanes[cpu, outputs] = match.problem.lanes
    assert lanes == {("znver4", 24): 8, ("znver4", 96): 16, ("skylake-avx512", 24): 16, ("skylake-avx512", 96): 16}


@pytest.mark.parametrize("block", [4, 8, 16])
def test_reads_blocks_of_another_width(block: int, rng: np.random.Generator) -> None:
    """24 channels lie in whole steps of 8, whatever block they come in that 8 divides; 4 do not hold a step."""
    machine = Machine.detect("znver4", 1)
    group = conv_group((1, 24, 7, 5), (24, 24, 3, 3), padding=(1, 1))
    match = matched(RECIPE, group, machine)
    offered = [Layout.blocked(4, block), *(Layout.plain(len(p.shape)) for p in group.params[1:])]
    layouts = RECIPE.layouts(match, RECIPE.default(match, machine), offered)
    assert layouts.params[0] == Layout.blocked(4, block if block >= 8 else 16)
    if Machine.detect().isa == "avx512":
        arrays = [random(rng, *p.shape) for p in group.params]
        got = run_kernel(RECIPE, group, arrays, machine, offered=offered)
        want = np.maximum(reference(arrays[0], arrays[1], (1, 1), (1, 1), (1, 1)) + arrays[2], 0)
        assert np.abs(got - want).max() <= (24 * 9 + 4) * ROUNDOFF * (9 * 24)


@pytest.mark.parametrize(("change", "reason"), [({"groups": 2}, "groups=2"), ({"data_layout": "NHWC"}, "NHWC")])
def test_refuses(change: dict[str, Any], reason: str) -> None:
    weight = (4, 2, 3, 3) if "groups" in change else (4, 4, 3, 3)
    x = (1, 4, 4, 4)
    group = make_group(
        "relax.nn.conv2d", [x, weight], lambda x, w: (yield relax.op.nn.conv2d(x, w, padding=1, **change)), (1,)
    )
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


def test_refuses_a_weight_that_is_not_constant() -> None:
    group = make_group(
        "relax.nn.conv2d", [(1, 4, 4, 4), (4, 4, 1, 1)], lambda x, w: (yield relax.op.nn.conv2d(x, w)), ()
    )
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "not a constant" in miss.reason


def assembly(target: str, group: Any) -> tuple[str, int]:
    """The kernel's assembly, and the vectors in its register tile."""
    machine = Machine.detect(target, 1)
    match = matched(RECIPE, group, machine)
    offered = [Layout.blocked(4, machine.lanes), *(Layout.plain(len(p.shape)) for p in group.params[1:])]
    config = RECIPE.default(match, machine)
    _, mod = scheduled(RECIPE, match, config, machine, offered)
    library = tvm.tirx.build(mod, target=machine.target())
    return library.inspect_source("asm"), config["tile_o"] * config["tile_p"]


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("skylake-avx512", "zmm"),
        ("haswell", "vfmadd"),
        ("x86-64-v2", "mulps"),
        ("aarch64-linux-gnu:cortex-a72", "fmla"),
    ],
)
def test_assembly_uses_the_vector_unit(target: str, instruction: str) -> None:
    text, tile = assembly(target, conv_group((1, 32, 14, 14), (64, 32, 3, 3), padding=(1, 1)))
    fused = [line for line in text.splitlines() if instruction in line]
    assert len(fused) >= tile


def test_default_keeps_the_tile_in_registers() -> None:
    for target in ("skylake-avx512", "haswell", "x86-64-v2", "aarch64-linux-gnu:cortex-a72"):
        machine = Machine.detect(target, 2)
        problem = blocked.Problem(1, 256, 196, 14, 256 // machine.lanes, (3, 3), machine.lanes, machine.lanes)
        config = blocked.default(problem, machine)
        assert blocked.registers_used(dict(config)) <= machine.registers
        assert config["tile_o"] * config["tile_p"] >= 4 * machine.fma_per_cycle
