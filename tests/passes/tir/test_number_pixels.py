"""Pixels of an image, numbered through the rows and columns of a call."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.nodes import nodes_of
from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import with_sizes
from tvm_ext.passes.tir.kernel_passes import lower_to_loops
from tvm_ext.passes.tir.number_pixels import number_pixels
from tvm_ext.schedules.blocked.problem import PIXELS

IMAGES, BLOCKS, ROWS, COLUMNS, LANES = 2, 2, 6, 5, 4
SHAPE = (IMAGES, BLOCKS, ROWS, COLUMNS, LANES)
SIZES = Sizes.of([Symbol("N", 1, IMAGES), Symbol("H", 1, ROWS), Symbol("W", 1, COLUMNS)])


def pixel(q: Any) -> tuple[Any, Any]:
    return tirx.floordiv(q, COLUMNS), tirx.floormod(q, COLUMNS)


def scheduled(tile: int, place: Callable[[Any], Any] = pixel) -> tirx.PrimFunc:
    """2 x of an image, in tiles of so many pixels of all that it has at the bound; threads share blocks and tiles.

    Args:
        place: (row, column) that is read of pixel q.
    """
    x = te.placeholder(SHAPE, "float32", "x")
    shape = (IMAGES, BLOCKS, ROWS * COLUMNS, LANES)
    out = te.compute(shape, lambda n, o, q, j: x[(n, o, *place(q), j)] * 2.0, name="out")
    sch = Schedule(te.create_prim_func([x, out]))
    block = sch.get_sblock("out")
    sch.transform_layout(block, ("write", 0), lambda n, o, q, j: (n, o, *pixel(q), j))
    n, o, q, j = sch.get_loops(block)
    _, inner = sch.split(q, [None, tile])
    sch.unroll(inner)
    sch.vectorize(j)
    sch.parallel(sch.fuse(n, o))
    sch.annotate(block, PIXELS, [2, ROWS * COLUMNS, COLUMNS])
    return sch.mod["main"]


def sized(function: tirx.PrimFunc) -> tirx.PrimFunc:
    n, h, w = SIZES.vars
    return with_sizes(function, [[n, BLOCKS, h, w, LANES]] * 2, SIZES)


@pytest.mark.parametrize("tile", [1, 4, 5, 8])
@pytest.mark.parametrize("extents", [(1, 1, 1), (2, 5, 3), (2, 1, 4), (1, 6, 2), (2, 6, 5)])
def test_the_pixels_of_a_call_are_written_and_nothing_else(extents: tuple[int, int, int], tile: int) -> None:
    built = compile_kernels({"main": sized(scheduled(tile))}, Machine.detect(None, 2))["main"]
    n, h, w = extents
    x = np.random.default_rng(5).standard_normal(SHAPE).astype("float32")
    out = tvm.runtime.tensor(np.full(SHAPE, np.nan, "float32"))
    built(tvm.runtime.tensor(x), tvm.runtime.tensor(np.array(extents, "int64")), out)
    want = np.full(SHAPE, np.nan, "float32")
    want[:n, :, :h, :w] = 2 * x[:n, :, :h, :w]
    assert np.array_equal(out.numpy(), want, equal_nan=True)


def test_tiles_end_with_the_pixels_of_a_call() -> None:
    """No loop is left over the eight tiles of the bound, and no condition."""
    body = lower_to_loops({"main": sized(scheduled(4))}, Machine.detect(None, 2).target())["main"].body
    extents = [int(loop.extent) for loop in nodes_of(body, tirx.For) if isinstance(loop.extent, tirx.IntImm)]
    assert 8 not in extents and not nodes_of(body, tirx.IfThenElse)


def test_without_run_time_extents_the_numbering_of_the_bound_stays() -> None:
    function = scheduled(4)
    assert number_pixels(function).same_as(function)


def test_pixels_in_another_order_are_refused() -> None:
    mirrored = scheduled(4, lambda q: pixel(ROWS * COLUMNS - 1 - q))
    with pytest.raises(AssertionError, match="out divides pixels in another way"):
        number_pixels(sized(mirrored))
