"""Memory beyond the extents decides neither where a kernel reads nor by what it divides."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import with_sizes
from tvm_ext.passes.tir.cutting.affine import Arithmetic
from tvm_ext.passes.tir.cutting.guards import guarded


def _built(value: Callable[..., Any], shapes: list[tuple[int, ...]], kind: tirx.ForKind) -> Any:
    """y[i] = value(x, at, i), eight rows at a time, compiled; sizes: how many rows of `at` and `y`."""
    x, at = te.placeholder(shapes[0], "int32", "x"), te.placeholder((16,), "int32", "at")
    kernel = te.create_prim_func([x, at, te.compute((16,), lambda i: value(x, at, i), name="y")])
    sch = Schedule(kernel)
    _, inner = sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 8])
    (sch.vectorize if kind == tirx.ForKind.VECTORIZED else sch.unroll)(inner)
    sizes = Sizes.of([Symbol("N", 1, 16)])
    rows = [sizes.vars[0]]
    first = [rows[0]] if shapes[0] == (16,) else [*shapes[0]]
    function = with_sizes(sch.mod["main"], [first, rows, rows], sizes)
    return compile_kernels({"main": function}, Machine.detect(None, 1))["main"]


@pytest.mark.parametrize("kind", [tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED])
@pytest.mark.parametrize("rows", [1, 5, 11, 16])
def test_a_gather_reads_inside_the_extents_only(rows: int, kind: tirx.ForKind) -> None:
    function = _built(lambda x, at, i: x[at[i]], [(4,)], kind)
    x, at = np.array([3, 5, 7, 9], "int32"), np.full(16, 1 << 30, "int32")
    at[:rows] = np.arange(rows) % 4
    y = tvm.runtime.tensor(np.full(16, -1, "int32"))
    function(*map(tvm.runtime.tensor, (x, at, np.array([rows], "int64"))), y)
    assert np.array_equal(y.numpy(), [*x[at[:rows]], *[-1] * (16 - rows)])


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_a_division_of_integers(rows: int) -> None:
    """By zero it ends the process."""
    function = _built(lambda x, at, i: tirx.truncdiv(x[i], at[i]), [(16,)], tirx.ForKind.UNROLLED)
    x, at = np.arange(16, dtype="int32"), np.zeros(16, "int32")
    at[:rows] = 3
    y = tvm.runtime.tensor(np.full(16, -1, "int32"))
    function(*map(tvm.runtime.tensor, (x, at, np.array([rows], "int64"))), y)
    assert np.array_equal(y.numpy(), [*x[:rows] // 3, *[-1] * (16 - rows)])


def test_an_index_that_cannot_leave_its_buffer_is_not_guarded() -> None:
    x, at = (tirx.decl_buffer((size,), "int32", name) for size, name in ((4, "x"), (16, "at")))
    i, n = tirx.Var("i", "int32"), tirx.Var("N", "int32")
    y = tirx.decl_buffer((16,), "int32", "y")
    store = tirx.BufferStore(y, x[tirx.floormod(at[i], 4)], [i])
    assert isinstance(guarded(store, {x: [None], at: [n], y: [n]}, Arithmetic()), tirx.BufferStore)


def test_indices_of_the_kernels_own_are_an_error_where_nothing_is_known_of_them() -> None:
    x, at, t = (tirx.decl_buffer((16,), "int32", name) for name in ("x", "at", "t"))
    i, n = tirx.Var("i", "int32"), tirx.Var("N", "int32")
    with pytest.raises(ValueError, match="'at'"):
        guarded(tirx.BufferStore(t, x[at[i]], [i]), {x: [n]}, Arithmetic())
