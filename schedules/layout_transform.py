"""A copy from one layout to another, where two neighbours disagree.

transform(x: NCHW) -> NCHW{l}c, and back
"""

from __future__ import annotations

import math

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine

from .steps import parallel_rows, thread_choices

NAME = "layout_transform"


def compute(shape: tuple[int, ...], dtype: str, source: Layout, target: Layout) -> tirx.PrimFunc:
    """A kernel that copies a tensor of logical `shape` from layout `source` to `target`.

    Lanes of the target beyond the blocked axis hold the axis' last element; nothing reads them.
    """
    data = te.placeholder(source.physical_shape(shape), dtype=dtype, name="p0")

    def value(*index: tirx.Expr) -> tirx.Expr:
        logical = list(target.logical(index))
        if target.block and shape[target.block[0]] % target.block[1]:
            axis = target.block[0]
            logical[axis] = tirx.min(logical[axis], shape[axis] - 1)
        return data(*source.index(logical))

    return te.create_prim_func([data, te.compute(target.physical_shape(shape), value, name="out")])


def schedule(sch: Schedule, shape: tuple[int, ...], machine: Machine) -> None:
    """Rows on threads; the copy itself is bound by memory."""
    threads = max(thread_choices(2 * math.prod(shape), machine))
    parallel_rows(sch, sch.get_loops(sch.get_sblock("out"))[:3], threads)
