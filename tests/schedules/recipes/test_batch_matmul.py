"""Batched matmul of two computed operands against float64."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.blocked.kernel import registers_used
from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import ROUNDOFF, drawn_points, make_group, matched, random, run_kernel, scheduled

RECIPE = BatchMatmul()
Shape = tuple[int, ...]


def product(a: Shape, b: Shape, bias: Shape | None = None) -> Any:
    def body(x: Any, y: Any, *rest: Any) -> Any:
        z = yield relax.op.matmul(x, y)
        if rest:
            yield relax.op.nn.relu((yield relax.op.add(z, rest[0])))

    return make_group("relax.matmul", [a, b, *([bias] if bias else [])], body)


def check(group: Any, machine: Machine, rng: Any, **run: Any) -> None:
    arrays = [random(rng, *p.shape) for p in group.params]
    got = run_kernel(RECIPE, group, arrays, machine, **run)
    x, y, *bias = (a.astype("float64") for a in arrays)
    exact, size = x @ y, abs(x) @ abs(y)
    if bias:
        exact, size = np.maximum(exact + bias[0], 0), size + abs(bias[0])
    assert np.all(np.abs(got - exact) <= (x.shape[-1] + 4) * ROUNDOFF * size)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 16, 8), (3, 8, 32)), ((1, 1), (1, 1)), ((7, 13), (13, 5)), ((2, 3, 17, 31), (2, 3, 31, 10)),
        ((2, 1, 5, 4), (3, 4, 6)), ((4, 9), (5, 9, 33)), ((2, 11, 16), (16, 48)), ((40, 3), (1, 3, 64)),
        ((2, 1, 64), (2, 64, 70)),
    ],
)  # fmt: skip
def test_agrees_with_float64(a: Shape, b: Shape, case_machine: Machine, rng: np.random.Generator) -> None:
    check(product(a, b), case_machine, rng)


@pytest.mark.parametrize("n", [16, 13])
def test_epilogue(n: int, machine: Machine, rng: np.random.Generator) -> None:
    check(product((2, 6, 40), (2, 40, n), (2, 1, n)), machine, rng)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("orders", [((0, 2, 1), (0, 1, 2)), ((1, 0, 2), (0, 2, 1)), ((2, 1, 0), (1, 0, 2))])
def test_operands_lie_transposed(orders: Any, pack: bool, rng: np.random.Generator) -> None:
    machine, group = Machine.detect(None, 2), product((3, 20, 12), (3, 12, 32))
    config = {**RECIPE.default(matched(RECIPE, group, machine), machine), "pack": pack}
    check(group, machine, rng, config=config, offered=[Layout(o) for o in orders])


def test_reads_in_place_what_it_can() -> None:
    machine, group = Machine.detect(None, 2), product((3, 20, 12), (3, 12, 32))
    match, offered = matched(RECIPE, group, machine), [Layout((0, 2, 1)), Layout((0, 2, 1))]
    config = RECIPE.default(match, machine)
    assert RECIPE.layouts(match, {**config, "pack": True}, offered).params == tuple(offered)
    assert RECIPE.layouts(match, {**config, "pack": False}, offered).params == (offered[0], Layout.plain(3))
    blocked = [Layout.blocked(3, 8), Layout.blocked(3, 8)]
    assert all(layout.is_plain for layout in RECIPE.layouts(match, config, blocked).params)


def test_packs_only_what_is_read_again() -> None:
    machine = Machine.detect("haswell", 2)

    def packs(a: Shape, b: Shape) -> bool:
        return RECIPE.default(matched(RECIPE, product(a, b), machine), machine)["pack"]

    assert packs((512, 512), (512, 512)) and packs((64, 64), (64, 1001))
    assert not packs((1, 512), (512, 1024)) and not packs((12, 64, 64), (12, 64, 64))
    for pack in (False, True):
        group = product((512, 512), (512, 512))
        config = {**RECIPE.default(matched(RECIPE, group, machine), machine), "pack": pack}
        assert ("pack" in str(scheduled(RECIPE, matched(RECIPE, group, machine), config, machine, None)[1])) == pack


@pytest.mark.parametrize("n", [24, 40, 64])
def test_columns_that_are_clamped_leave_a_register_free(n: int) -> None:
    """Those of whole tiles need none: their address is the next one's."""
    machine = Machine.detect("haswell", 2)
    match = matched(RECIPE, product((12, 64, 64), (12, 64, n)), machine)
    full = {"tile_o": 3, "tile_p": 4, "parts": 1, "chunk": match.problem.blocks, "threads": 2, "pack": False}
    assert registers_used(full) == machine.registers
    assert np.isfinite(RECIPE.cost(match, full, machine)) == (n % (3 * machine.lanes) == 0)
    assert np.isfinite(RECIPE.cost(match, {**full, "pack": True}, machine))
    assert np.isfinite(RECIPE.cost(match, {**full, "tile_p": 3}, machine))


def test_points_of_the_space_agree(rng: np.random.Generator) -> None:
    machine, group = Machine.detect(None, 2), product((2, 11, 64), (2, 64, 40))
    for config in drawn_points(RECIPE, group, machine, rng, 5):
        check(group, machine, rng, config={**config, "threads": 2})


@pytest.mark.parametrize(
    ("a", "b", "constants", "reason"),
    [
        ((2, 3), (3, 4), (1,), "constant matrix"),
        ((3,), (3, 4), (), "two dimensions"),
        ((2, 3), (3,), (), "two dimensions"),
        ((0, 3), (3, 4), (), "empty"),
    ],
)
def test_refuses(a: Shape, b: Shape, constants: Shape, reason: str) -> None:
    group = make_group("relax.matmul", [a, b], lambda x, y: (yield relax.op.matmul(x, y)), constants)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (20, 48), (33, 17)])
def test_sums_of_any_length(
    rows: int, columns: int, order: Any, pack: bool, case_machine: Machine, rng: np.random.Generator
) -> None:
    """NaN behind the extents of both operands."""
    (n, k), bound = symbols("NK"), 100
    group = product((3, rows, bound), (3, bound, columns), (1, 1, columns))
    group = with_extents(group, (n, rows, k), (n, k, columns), (1, 1, columns), (n, rows, columns))
    match = matched(RECIPE, group, case_machine)
    pack = pack or match.problem.outputs % match.problem.lanes > 0
    config = {**RECIPE.default(match, case_machine), "pack": pack}
    offered = [Layout(order), Layout(order) if pack else Layout.plain(3), Layout.plain(3)]
    kernel = AnySize(RECIPE, group, case_machine, config, offered)
    for size in each_size(N={1, 3}, K={1, 13, 64, bound}):
        x, y, bias = (
            random(rng, *s) for s in ((size["N"], rows, size["K"]), (size["N"], size["K"], columns), (1, 1, columns))
        )
        exact, magnitude = (a.astype("float64") @ b.astype("float64") for a, b in ((x, y), (abs(x), abs(y))))
        got = kernel(size, exact.shape, x, y, bias)
        bound_of_error = (size["K"] + 4) * ROUNDOFF * (magnitude + abs(bias))
        assert np.all(np.abs(got - np.maximum(exact + bias, 0)) <= bound_of_error), size
