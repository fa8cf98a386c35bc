"""Elements of own buffers, numbered through the rows and columns of a call."""

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
from tvm_ext.schedules.blocked.problem import NUMBERED

IMAGES, ROWS, COLUMNS, LANES = 3, 6, 5, 4
SIZES = Sizes.of([Symbol("N", 1, IMAGES), Symbol("H", 1, ROWS), Symbol("W", 1, COLUMNS)])


def kernel(place: Callable[[Any], Any], said: tuple[int, int] = (ROWS, COLUMNS)) -> tirx.PrimFunc:
    """2 x + 1 of (N, H, W, lanes), in tiles of 4 elements; the result reads column `place(w)`.

    Args:
        said: rows and columns that the annotation states.
    """
    x = te.placeholder((IMAGES, ROWS, COLUMNS, LANES), "float32", "x")
    many = IMAGES * ROWS * COLUMNS
    v = te.compute((1, 1, many, LANES), lambda a, b, q, j: x[q // COLUMNS // ROWS, q // COLUMNS % ROWS, q % COLUMNS, j]
                   * 2.0, name="v")  # fmt: skip
    p = te.compute((1, 1, many, LANES), lambda a, b, q, j: v[a, b, q, j] + 1.0, name="p")
    out = te.compute(x.shape, lambda n, y, w, j: p[0, 0, (n * ROWS + y) * COLUMNS + place(w), j], name="out")
    sch = Schedule(te.create_prim_func([x, out]))
    *_, q, j = sch.get_loops(sch.get_sblock("p"))
    tiles, inner = sch.split(q, [None, 4])
    sch.annotate(tiles, NUMBERED, ["v", "p", *said])
    sch.unroll(inner)
    sch.vectorize(j)
    sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock("out"))[:2]))
    return with_sizes(sch.mod["main"], [[*SIZES.vars, LANES]] * 2, SIZES)


def counts_of(function: tirx.PrimFunc) -> set[str]:
    """Names of the run-time counts by which elements are numbered."""
    body = lower_to_loops({"main": function}, Machine.detect(None, 2).target())["main"].body
    return {bind.var.name for bind in nodes_of(body, tirx.Bind)} & {"rows", "columns"}


def assert_right(function: tirx.PrimFunc, place: Callable[[Any], Any], extents: tuple[int, ...]) -> None:
    built = compile_kernels({"main": function}, Machine.detect(None, 2))["main"]
    n, h, w = extents
    x = np.random.default_rng(5).standard_normal((IMAGES, ROWS, COLUMNS, LANES)).astype("float32")
    out = tvm.runtime.tensor(np.full(x.shape, np.nan, "float32"))
    built(tvm.runtime.tensor(x), tvm.runtime.tensor(np.array(extents, "int64")), out)
    columns = [place(column) for column in range(w)]
    assert np.array_equal(out.numpy()[:n, :h, :w], 2 * x[:n, :h][:, :, columns] + 1)


@pytest.mark.parametrize("extents", [(1, 1, 1), (2, 5, 3), (3, 1, 4), (1, 6, 2), (3, 6, 5)])
def test_elements_are_those_of_the_call(extents: tuple[int, ...]) -> None:
    function = kernel(lambda w: w)
    assert counts_of(function) == {"rows", "columns"}
    assert_right(function, lambda w: w, extents)


@pytest.mark.parametrize("extents", [(1, 1, 1), (2, 5, 3), (3, 6, 5)])
def test_what_is_no_sum_of_digits_keeps_the_numbering_of_the_bound(extents: tuple[int, ...]) -> None:
    """A mirrored row; and an annotation of other rows than the buffers have."""
    mirrored = lambda w: COLUMNS - 1 - w  # noqa: E731
    assert not counts_of(kernel(mirrored))
    assert_right(kernel(mirrored), mirrored, extents)
    other = kernel(lambda w: w, (COLUMNS, ROWS))
    assert not counts_of(other)
    assert_right(other, lambda w: w, extents)
