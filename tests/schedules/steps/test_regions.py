"""Concat, slice and pad move the right elements, in every layout their operands come in."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss, Recipe
from tvm_ext.schedules.recipes.concat import Concat
from tvm_ext.schedules.recipes.pad import Pad
from tvm_ext.schedules.recipes.strided_slice import StridedSlice

from ..kernels import make_group, matched, random, run_kernel


def concat_group(shapes: Any, axis: int, **options: Any) -> Any:
    def body(*operands: Any) -> Any:
        c = yield relax.op.concat(list(operands), axis)
        yield relax.op.negative(c)

    return make_group("relax.concat", shapes, body, **options)


def slice_group(shape: Any, axes: Any, begin: Any, end: Any, step: Any, **options: Any) -> Any:
    def body(x: Any) -> Any:
        s = yield relax.op.strided_slice(x, axes, begin, end, step)
        yield relax.op.negative(s)

    return make_group("relax.strided_slice", [shape], body, **options)


def pad_group(shape: Any, widths: Any, value: float = 0.5, mode: str = "constant") -> Any:
    def body(x: Any, b: Any) -> Any:
        p = yield relax.op.nn.pad(x, widths, mode, value)
        yield relax.op.add(p, b)

    return make_group("relax.nn.pad", [shape, (1, *[1] * (len(shape) - 1))], body)


def layouts_of(recipe: Recipe, group: Any, machine: Machine, offered: Any) -> Any:
    match = matched(recipe, group, machine)
    return recipe.layouts(match, recipe.default(match, machine), offered)


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(1, 3, 5, 7), (1, 13, 5, 7)], 1), ([(2, 4, 3), (2, 1, 3), (2, 9, 3)], -2),
        ([(5, 17), (5, 1), (5, 64)], 1), ([(3,), (100,)], 0), ([(1, 1), (1, 1)], 0), ([(2, 3, 40)], 2),
    ],
)  # fmt: skip
def test_concat(shapes: Any, axis: int, case_machine: Machine, rng: np.random.Generator) -> None:
    arrays = [random(rng, *s) for s in shapes]
    got = run_kernel(Concat(), concat_group(shapes, axis), arrays, case_machine)
    assert np.array_equal(got, -np.concatenate(arrays, axis))


def test_concat_of_one_tensor_with_itself(rng: np.random.Generator) -> None:
    def body(x: Any) -> Any:
        yield relax.op.concat([x, x], 0)

    x = random(rng, 3, 5)
    got = run_kernel(Concat(), make_group("relax.concat", [(3, 5)], body), [x], Machine.detect())
    assert np.array_equal(got, np.concatenate([x, x]))


@pytest.mark.parametrize(
    ("channels", "axis", "stays"), [((2, 1), 1, True), ((2, 0.5), 1, True), ((0.5, 2), 1, False), ((1.5, 1.5), 3, True)]
)
def test_concat_keeps_blocks_that_operands_fill(
    channels: Any, axis: int, stays: bool, case_machine: Machine, rng: np.random.Generator
) -> None:
    shapes = [(2, int(c * case_machine.lanes), 3, 5) for c in channels]
    offered = [Layout.blocked(4, case_machine.lanes)] * 2
    group = concat_group(shapes, axis)
    assert layouts_of(Concat(), group, case_machine, offered).output.is_plain is not stays
    arrays = [random(rng, *s) for s in shapes]
    got = run_kernel(Concat(), group, arrays, case_machine, offered=offered)
    assert np.array_equal(got, -np.concatenate(arrays, axis))


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_other_types(dtype: str, rng: np.random.Generator) -> None:
    arrays = [rng.integers(-9, 9, (3, n)).astype(dtype) for n in (4, 21)]

    def body(x: Any, y: Any) -> Any:
        yield relax.op.concat([x, y], 1)

    got = run_kernel(
        Concat(), make_group("relax.concat", [(3, 4), (3, 21)], body, dtype=dtype), arrays, Machine.detect()
    )
    assert got.dtype == dtype and np.array_equal(got, np.concatenate(arrays, 1))


@pytest.mark.parametrize(
    ("shape", "axes", "begin", "end", "step"),
    [
        ((2, 9, 5), [1], [2], [7], [1]), ((2, 9, 50), [-1, 0], [1, -1], [50, 99], [1, 1]),
        ((3, 40), [1], [1], [40], [3]), ((3, 40), [0, 1], [-1, 38], [-4, 3], [-1, -7]),
        ((1, 32, 6, 7), [1, 2], [16, 2], [32, 5], [1, 2]), ((1, 32, 6, 7), [1], [5], [32], [1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("blocked", [False, True])
def test_slice(
    shape: Any, axes: Any, begin: Any, end: Any, step: Any, blocked: bool, case_machine: Machine, rng: Any
) -> None:
    x = random(rng, *shape)
    where = [slice(None)] * x.ndim
    for a, b, e, s in zip(axes, begin, end, step, strict=True):
        where[a] = slice(b, e, s) if s > 0 or e >= -shape[a] else slice(b, None, s)
    offered = [Layout.blocked(4, case_machine.lanes)] if blocked and x.ndim == 4 else None
    got = run_kernel(StridedSlice(), slice_group(shape, axes, begin, end, step), [x], case_machine, offered=offered)
    assert np.array_equal(got, -x[tuple(where)])


def test_slice_that_begins_a_block_keeps_it(machine: Machine) -> None:
    lanes = machine.lanes
    for begin, stays in ((lanes, True), (lanes // 2, False)):
        group = slice_group((1, 3 * lanes, 4, 4), [1], [begin], [3 * lanes], [1])
        assert layouts_of(StridedSlice(), group, machine, [Layout.blocked(4, lanes)]).output.is_plain is not stays


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((1, 20, 5, 7), [0, 0, 0, 0, 1, 1, 2, 0]), ((1, 20, 5, 7), [0, 0, 1, 4, 0, 0, 0, 0]),
        ((3, 40), [1, 0, 0, 9]), ((4,), [3, 3]), ((2, 2), [0, 0, 0, 0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("blocked", [False, True])
def test_pad(shape: Any, widths: Any, blocked: bool, case_machine: Machine, rng: np.random.Generator) -> None:
    x, b = random(rng, *shape), random(rng, *[1] * len(shape))
    offered = [Layout.blocked(4, case_machine.lanes), Layout.plain(4)] if blocked and x.ndim == 4 else None
    got = run_kernel(Pad(), pad_group(shape, widths), [x, b], case_machine, offered=offered)
    pairs = list(zip(widths[0::2], widths[1::2], strict=True))
    assert np.array_equal(got, np.pad(x, pairs, constant_values=np.float32(0.5)) + b)


def test_pad_refuses_another_mode() -> None:
    miss = Pad().match(pad_group((4, 5), [0, 0, 1, 1], mode="reflect"), Machine.detect())
    assert isinstance(miss, Miss) and "reflect" in miss.reason
