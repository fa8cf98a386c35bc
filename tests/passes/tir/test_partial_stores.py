"""Kernels without the copy of an operand that their result holds already; and those of which nobody can tell."""

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.tir.partial_stores import without_copy


@T.prim_func(s_tir=True)
def scatter(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    with T.sblock("scatter"):
        for i in range(24):
            out[i // 4, i % 4] = old[i // 4, i % 4]
        for j in range(4):
            out[row[0], j] = out[row[0], j] + T.float32(1)


@T.prim_func(s_tir=True)
def copied_last(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    with T.sblock("scatter"):
        for j in range(4):
            out[row[0], j] = T.float32(1)
        for i in range(24):
            out[i // 4, i % 4] = old[i // 4, i % 4]


@T.prim_func(s_tir=True)
def copied_often(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    for _ in range(2):
        with T.sblock("scatter"):
            for i in range(24):
                out[i // 4, i % 4] = old[i // 4, i % 4]
            for j in range(4):
                out[row[0], j] = out[row[0], j] + T.float32(1)


@T.prim_func(s_tir=True)
def copied_elsewhere(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    with T.sblock("scatter"):
        for i in range(24):
            out[i // 4, i % 4] = old[5 - i // 4, i % 4]
        for j in range(4):
            out[row[0], j] = T.float32(1)


@T.prim_func(s_tir=True)
def read_again(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    with T.sblock("scatter"):
        for i in range(24):
            out[i // 4, i % 4] = old[i // 4, i % 4]
        for j in range(4):
            out[row[0], j] = old[0, j]


@T.prim_func(s_tir=True)
def only_sometimes(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    for i, j in T.grid(6, 4):
        if row[0] > T.int64(2):
            with T.sblock("out"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                out[v_i, v_j] = T.Select(T.Cast("int64", v_i) == row[0], T.float32(1), old[v_i, v_j])


@T.prim_func(s_tir=True)
def by_a_buffer(old: T.Buffer((6, 4), "float32"), row: T.Buffer((1,), "int64"), out: T.Buffer((6, 4), "float32")):
    here = T.sblock_alloc_buffer((6,), "bool")
    for i in range(6):
        with T.sblock("here"):
            v_i = T.axis.spatial(6, i)
            here[v_i] = T.Cast("int64", v_i) == row[0]
    for i, j in T.grid(6, 4):
        with T.sblock("out"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            out[v_i, v_j] = T.Select(here[v_i], T.float32(1), old[v_i, v_j])


def chosen(value) -> tirx.PrimFunc:
    """out[6, 4] = value(old, row, i, j)."""
    old, row = te.placeholder((6, 4), name="old"), te.placeholder((1,), "int64", name="row")
    out = te.compute((6, 4), lambda i, j: value(old, row, i.astype("int64"), j.astype("int64"), i, j), name="out")
    return te.create_prim_func([old, row, out])


ONE = tirx.const(1.0, "float32")
CHANGES = {
    "a scatter": (scatter, lambda old: old + 1),
    "a row": (chosen(lambda o, r, a, b, i, j: tirx.Select(a == r(0), ONE, o(i, j))), np.ones_like),
    "all other rows": (chosen(lambda o, r, a, b, i, j: tirx.Select(a != r(0), o(i, j), ONE)), np.ones_like),
    "a guarded row": (chosen(lambda o, r, a, b, i, j: tirx.if_then_else(a == r(0), ONE, o(i, j))), np.ones_like),
}
REFUSED = {
    "copied last": copied_last, "copied often": copied_often, "copied elsewhere": copied_elsewhere,
    "read again": read_again, "only sometimes": only_sometimes, "by a buffer": by_a_buffer,
    "by column": chosen(lambda o, r, a, b, i, j: tirx.Select(b == r(0), ONE, o(i, j))),
    "by the old value": chosen(lambda o, r, a, b, i, j: tirx.Select(o(i, 0) > 0, ONE, o(i, j))),
    "another old value": chosen(lambda o, r, a, b, i, j: tirx.Select(a == r(0), ONE, o(5 - i, j))),
    "a sum": chosen(lambda o, r, a, b, i, j: o(i, j) + ONE),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_only_what_changes_is_written(name: str) -> None:
    kernel, change = CHANGES[name]
    smaller = without_copy(kernel, 0)
    assert smaller is not None and len(smaller.params) == 2
    code = compile_kernels({"k": smaller.with_attr("global_symbol", "k")}, Machine.detect(None, 1))
    out = np.arange(24, dtype=np.float32).reshape(6, 4)
    wanted = out.copy()
    wanted[4] = change(out[4])
    array = tvm.runtime.tensor(out)
    code["k"](tvm.runtime.tensor(np.array([4])), array)
    assert np.array_equal(array.numpy(), wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_of_other_kernels_nobody_can_tell(name: str) -> None:
    assert without_copy(REFUSED[name], 0) is None
