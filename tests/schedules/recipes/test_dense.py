"""Packed matmul against float64."""

from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from tvm_ext.core.graph.nodes import nodes_of
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.blocked import kernel as blocked
from tvm_ext.schedules.blocked.prefetch import SHARED_BY
from tvm_ext.schedules.recipes.dense import Dense

from ..any_size import AnySize, symbols, with_extents
from ..kernels import ROUNDOFF, drawn_points, make_group, matched, random, run_kernel, scheduled

RECIPE = Dense()


def dense_group(x: tuple[int, ...], n: int, *, residual: bool = False) -> Any:
    def body(x: Any, w: Any, b: Any, *r: Any) -> Any:
        y = yield relax.op.matmul(x, w)
        y = yield relax.op.add(y, b)
        if r:
            y = yield relax.op.add(y, r[0])
        yield relax.op.nn.relu(y)

    shapes = [x, (x[-1], n), (n,), *([(*x[:-1], n)] if residual else [])]
    return make_group("relax.matmul", shapes, body, constants=(1, 2))


def check(x_shape: tuple[int, ...], n: int, machine: Machine, rng: Any, residual: bool = False, **run: Any) -> None:
    group = dense_group(x_shape, n, residual=residual)
    arrays = [random(rng, *p.shape) for p in group.params]
    got = run_kernel(RECIPE, group, arrays, machine, **run)
    x, w, *rest = (a.astype("float64") for a in arrays)
    exact = np.maximum(x @ w + sum(rest), 0)
    bound = (x_shape[-1] + 4) * ROUNDOFF * (abs(x) @ abs(w) + sum(abs(r) for r in rest))
    assert np.all(np.abs(got - exact) <= bound)


@pytest.mark.parametrize(
    ("x", "n"),
    [((1, 512), 1000), ((1, 7), 1), ((64, 31), 48), ((5, 17), 13), ((2, 3, 24), 10), ((1, 1), 16), ((130, 64), 33)],
)
def test_agrees_with_float64(x: tuple[int, ...], n: int, case_machine: Machine, rng: np.random.Generator) -> None:
    check(x, n, case_machine, rng)


@pytest.mark.parametrize("n", [16, 13])
def test_residual(n: int, machine: Machine, rng: np.random.Generator) -> None:
    check((6, 40), n, machine, rng, residual=True)


def test_points_of_the_space_agree(rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 2)
    for config in drawn_points(RECIPE, dense_group((11, 64), 40), machine, rng, 5):
        check((11, 64), 40, machine, rng, config={**config, "threads": 2})


def test_few_rows_stream_the_weights_once() -> None:
    """One chunk, all rows in a tile, enough accumulators for the latency; threads only where they save time."""
    machine = Machine.detect("haswell", 2)
    for rows in (1, 3):
        config = RECIPE.default(matched(RECIPE, dense_group((rows, 2048), 2048), machine), machine)
        assert (config["tile_p"], config["parts"], config["chunk"], config["threads"]) == (rows, 1, 2048 // 8, 2)
        assert config["tile_o"] * rows >= 4
    assert RECIPE.default(matched(RECIPE, dense_group((1, 128), 64), machine), machine)["threads"] == 1


def test_little_work_is_cut_for_the_threads_it_runs_on() -> None:
    """One tile of columns: the rows are cut in two parts, and no thread computes padding."""
    machine = Machine.detect("haswell", 2)
    match = matched(RECIPE, dense_group((64, 512), 10), machine)
    config = RECIPE.default(match, machine)
    units = blocked.Units.of(match.problem, config)
    assert config["threads"] == 2
    assert units.padded_blocks == match.problem.output_blocks and units.padded_pixels < 64 + units.tile_p


def test_few_columns_take_narrow_vectors() -> None:
    machine = Machine.detect("haswell", 2)
    assert [matched(RECIPE, dense_group((32, 64), n), machine).problem.lanes for n in (3, 4, 5, 8, 10)] == [
        4, 4, 8, 8, 8,
    ]  # fmt: skip


def test_one_kernel_writes_a_result_that_is_no_whole_number_of_vectors() -> None:
    machine = Machine.detect("haswell", 2)
    match = matched(RECIPE, dense_group((64, 32), 1001), machine)
    _, mod = scheduled(RECIPE, match, RECIPE.default(match, machine), machine, None)
    assert str(mod).count("T.parallel") == 1 and "copy" not in str(mod)


@pytest.mark.parametrize(
    ("shapes", "constants", "reason"),
    [
        ([(2, 3), (3, 4)], (), "not a constant matrix"),
        ([(2, 2, 3), (2, 3, 4)], (1,), "not a constant matrix"),
        ([(3,), (3, 4)], (1,), "rows are needed"),
        ([(0, 3), (3, 4)], (1,), "empty"),
    ],
)
def test_refuses(shapes: Any, constants: tuple[int, ...], reason: str) -> None:
    group = make_group("relax.matmul", shapes, lambda x, w: (yield relax.op.matmul(x, w)), constants)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


@pytest.mark.parametrize(("tile_p", "alone"), [(6, True), (2, False)])
@pytest.mark.parametrize("rows", [1, 2, 7, 24])
def test_rows_of_run_time_length_share_prefetches_by_tiles_of_a_call(
    rows: int, tile_p: int, alone: bool, rng: np.random.Generator
) -> None:
    """The loop over tiles says how many lines all of them ask for, below 0 where one alone leaves no load slot free."""
    machine, group = Machine.detect(None, 2), dense_group((24, 64), 96)
    config = {"tile_o": 2, "tile_p": tile_p, "parts": 1, "chunk": 2, "threads": 2}
    (n,) = symbols("N")
    free = with_extents(group, (n, 64), (64, 96), (96,), (n, 96))
    assert matched(RECIPE, free, machine).problem.free and not matched(RECIPE, group, machine).problem.free
    kernel = AnySize(RECIPE, free, machine, config)
    loops = [loop for loop in nodes_of(kernel.kernel.body, tirx.For) if SHARED_BY in loop.annotations]
    (lines,) = (int(loop.annotations[SHARED_BY]) for loop in loops)
    assert abs(lines) > 1 and (lines > 0) == alone
    x, w, b = random(rng, rows, 64), random(rng, 64, 96), random(rng, 96)
    got = kernel({"N": rows}, (rows, 96), x, w, b)
    wide = [a.astype("float64") for a in (x, w, b)]
    bound = (64 + 4) * ROUNDOFF * (abs(wide[0]) @ abs(wide[1]) + abs(wide[2]))
    assert np.all(np.abs(got - np.maximum(wide[0] @ wide[1] + wide[2], 0)) <= bound)
