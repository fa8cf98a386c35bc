"""Scheduling steps: how loops are shared among threads."""

import math

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.schedules.steps.loops import parallel_image

Shape = tuple[int, ...]


def image(shape: Shape) -> Schedule:
    """y = x + 1 on an image in blocks of channels."""
    x = te.placeholder(shape, "float32", "x")
    y = te.compute(shape, lambda *i: x(*i) + tirx.const(1, "float32"), "y")
    return Schedule(te.create_prim_func([x, y]))


def shared(shape: Shape, threads: int) -> tuple[Schedule, list[int], bool]:
    """The schedule, the extents of its loops, and whether the first one runs on threads."""
    sch = image(shape)
    n, c, y = sch.get_loops(sch.get_sblock("y"))[:3]
    parallel_image(sch, n, c, y, threads)
    loops = [sch.get(loop) for loop in sch.get_loops(sch.get_sblock("y"))]
    return sch, [int(loop.extent) for loop in loops], int(loops[0].kind) == int(tirx.ForKind.PARALLEL)


@pytest.mark.parametrize(
    ("shape", "threads", "extents"),
    [
        ((1, 3, 8, 5, 4), 2, [2, 1, 3, 4, 5, 4]),  # rows
        ((3, 3, 20, 5, 4), 3, [3, 60, 5, 4]),  # whole images
        ((1, 4, 7, 5, 4), 2, [2, 14, 5, 4]),  # 7 rows are no even shares: blocks of channels
        ((1, 2, 23, 5, 4), 3, [3, 1, 2, 8, 5, 4]),  # 8, 8 and 7 rows are nearly
        ((1, 1, 1, 5, 4), 2, [1, 5, 4]),  # there is nothing to share
    ],
)
def test_images_are_shared_by_rows(shape: Shape, threads: int, extents: list[int]) -> None:
    sch, loops, parallel = shared(shape, threads)
    assert loops == extents
    assert parallel == (math.prod(shape[:3]) > 1)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    out = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    tvm.compile(sch.mod, target="llvm").jit()["main"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), x + np.float32(1))


def test_one_thread_shares_nothing() -> None:
    assert not shared((1, 3, 8, 5, 4), 1)[2]
