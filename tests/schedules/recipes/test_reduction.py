"""Reductions against float64."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.schedules.recipes.reduction import Reduction

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import ROUNDOFF, make_group, random, run_kernel

RECIPE = Reduction()
NUMPY = {"mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min}


def check(op: str, shape: Any, axes: Any, keepdims: bool, machine: Machine, rng: Any, offered: Any = None) -> None:
    def body(x: Any) -> Any:
        y = yield getattr(relax.op, op)(x, axis=axes, keepdims=keepdims)
        yield relax.op.abs(y)

    group = make_group(f"relax.{op}", [shape], body)
    x = random(rng, *shape)
    got = run_kernel(RECIPE, group, [x], machine, offered=offered)
    axis = tuple(axes) if axes is not None else None
    exact = np.abs(NUMPY[op](x.astype("float64"), axis=axis, keepdims=keepdims))
    count = x.size // max(exact.size, 1)
    magnitude = np.sum(np.abs(x), axis=axis, keepdims=keepdims) / (count if op == "mean" else 1)
    assert got.shape == exact.shape
    assert np.all(np.abs(got - exact) <= (count + 2) * ROUNDOFF * magnitude)


@pytest.mark.parametrize("shape", [(3, 61), (2, 20, 1, 61)])
def test_the_mean_of_a_constant_is_that_constant(shape: Any, case_machine: Machine) -> None:
    def body(x: Any) -> Any:
        yield relax.op.mean(x, axis=[*range(len(shape) // 2, len(shape))])

    x = np.full(shape, 3.0, np.float32)
    np.testing.assert_array_equal(run_kernel(RECIPE, make_group("relax.mean", [shape], body), [x], case_machine), 3.0)


#: shape, axes, keepdims
CASES = [
    ((1, 24, 7, 7), [2, 3], True), ((2, 13, 5, 3), [2, 3], False), ((6, 64), [-1], True), ((6, 17), [-1], False),
    ((3, 5, 16), [0, 2], False), ((4, 16), [0], True), ((4, 9, 3), None, False), ((1, 1), [1], True),
    ((5, 1000), [1], False), ((3, 7, 100), [1], True), ((3, 4, 2, 9), [0, 2], False),
    ((2, 3, 5, 7), [0, 1, 3], True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axes", "keepdims", "op"),
    [(*case, [*NUMPY][(i + more) % 4]) for i, case in enumerate(CASES) for more in (0, 1 + i // 4)],
)
def test_agrees_with_float64(op: str, shape: Any, axes: Any, keepdims: bool, case_machine: Machine, rng: Any) -> None:
    check(op, shape, axes, keepdims, case_machine, rng)


@pytest.mark.parametrize("op", ["mean", "max"])
@pytest.mark.parametrize(("shape", "keepdims"), [((1, 64, 7, 7), True), ((2, 13, 5, 3), False), ((1, 1, 1, 1), True)])
def test_reads_blocks_of_channels(op: str, shape: Any, keepdims: bool, case_machine: Machine, rng: Any) -> None:
    check(op, shape, [2, 3], keepdims, case_machine, rng, [Layout.blocked(4, case_machine.lanes)])


@pytest.mark.parametrize(("op", "axes"), [("mean", [2, 3]), ("min", [1]), ("mean", [0, 2, 3]), ("min", [1, 3])])
@pytest.mark.parametrize("channels", [32, 13])
def test_reads_any_layout(op: str, axes: Any, channels: int, case_machine: Machine, rng: Any) -> None:
    for offered in (Layout((0, 2, 3, 1)), Layout.blocked(4, case_machine.lanes)):
        check(op, (2, channels, 5, 3), axes, True, case_machine, rng, [offered])


#: bound, run-time extents, axes, layout
ANY_SIZE = {
    "over tokens": ((3, 50, 48), "NS.", [1], "plain"),
    "rows": ((3, 4, 100), "N.S", [2], "plain"),
    "rows and columns": ((3, 48, 101), "N.S", [0, 2], "plain"),
    "everything": ((4, 9, 13), "NSW", None, "plain"),
    "one row": ((300,), "S", [0], "plain"),
    "an image": ((2, 24, 9, 11), "N.SW", [2, 3], "plain"),
    "an image in blocks": ((2, 24, 9, 11), "N.SW", [2, 3], "blocks"),
    "an image, channels last": ((2, 24, 9, 11), "N.SW", [2, 3], "last"),
    "channels in blocks": ((2, 32, 5, 3), "NC..", [1], "blocks"),
    "channels last": ((2, 32, 5, 3), "NC..", [1, 2], "last"),
}


@pytest.mark.parametrize("op", NUMPY)
@pytest.mark.parametrize("case", ANY_SIZE)
def test_any_size(case: str, op: str, case_machine: Machine, rng: np.random.Generator) -> None:
    """NaN behind the extents; no result is the number that a reduction starts from."""
    bound, names, axes, lies = ANY_SIZE[case]
    known = [name for name in names if name != "."]
    used = dict(zip(known, symbols("".join(known)), strict=True))
    extents = [used.get(name, d) for name, d in zip(names, bound, strict=True)]
    reduced = axes if axes is not None else range(len(bound))
    group = make_group(f"relax.{op}", [bound], lambda x: (yield getattr(relax.op, op)(x, axis=axes)))
    group = with_extents(group, extents, [e for a, e in enumerate(extents) if a not in reduced])
    rank = len(bound)
    layouts = {
        "plain": Layout.plain(rank),
        "blocks": Layout.blocked(4, case_machine.lanes),
        "last": Layout((0, 2, 3, 1)),
    }
    kernel = AnySize(RECIPE, group, case_machine, offered=[layouts[lies]])
    limits = {name: d for name, d in zip(names, bound, strict=True) if name != "."}
    for size in each_size(**{name: {1, d // 2 + 1, d - 1, d} for name, d in limits.items()}):
        x = random(rng, *(size.get(name, d) for name, d in zip(names, bound, strict=True))) + {"max": -5, "min": 5}.get(
            op, 0
        )
        x = x.astype("float32")
        exact = NUMPY[op](x.astype("float64"), axis=tuple(reduced))
        got = kernel(size, exact.shape, x)
        count = x.size // max(exact.size, 1)
        magnitude = np.sum(np.abs(x), axis=tuple(reduced)) / (count if op == "mean" else 1)
        assert np.all(np.abs(got - exact) <= (count + 2) * ROUNDOFF * magnitude), size
