"""Gemm, determinants and inverses.

Gauss and Jordan:   [A | 1]   ->   [1 | inverse of A]   by the largest element of each column, the pivot
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...core.graph.relax_graph import dtype_of
from ..checks.refusal import Refusal
from .base import Attributes, as_dtype, constant, converts, emit, kernel, static_shape, stock, widest

#: Rows up to which Laplace's expansion is written out: 4 rows are 24 products.
_MOST_ROWS = 4


@converts("Gemm")
def gemm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Gemm; what a beta of 0 multiplies is not read, as in BLAS: 0 times infinity is NaN."""
    read = inputs if attributes.get("beta", 1.0) else list(inputs)[:2]
    return stock("Gemm", read, attributes, opset)


@converts("Det")
def determinant(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Det of the last two dimensions, by expansion along the first row, or of many rows by elimination."""
    *batch, rows, columns = static_shape(inputs[0], "the input of Det")
    if rows != columns:
        raise Refusal(f"the determinant of {rows} x {columns} elements")
    if rows > _MOST_ROWS:
        return eliminated(inputs[0], jordan=False)
    if not rows:  # of nothing: the empty product
        return constant(np.ones(batch), dtype_of(inputs[0]))

    def compute(data: te.Tensor) -> te.Tensor:
        if batch:
            return te.compute(batch, lambda *i: _expanded(lambda r, c: data(*i, r, c), 0, range(rows)), name="out")
        flat = te.compute([1], lambda i: _expanded(lambda r, c: data(r + i, c), 0, range(rows)), name="flat")
        return te.compute([], lambda: flat(0), name="out")

    return kernel(compute, inputs[0], name="determinant")


def _expanded(element: Callable[[int, int], Any], row: int, columns: Sequence[int]) -> Any:
    if len(columns) == 1:
        return element(row, columns[0])
    total = None
    for k, column in enumerate(columns):
        minor = _expanded(element, row + 1, [c for c in columns if c != column])
        term = element(row, column) * minor
        total = term if total is None else total - term if k % 2 else total + term
    return total


# ------------------------------------------------------------ of any size
def eliminated(x: Any, jordan: bool) -> Any:
    """Of square matrices the inverses, with `jordan`, or the determinants; narrow floats are eliminated in float32.

    A singular matrix has an inverse of infinities and NaN.
    """
    *batch, rows, _ = static_shape(x, "the matrices")
    count, dtype = math.prod(batch), widest(x)
    shapes = [(count, rows, rows * (1 + jordan)), (count,)]

    def compute(data: te.Tensor) -> list[te.Tensor]:
        return list(te.extern(shapes, [data], lambda ins, outs: _elimination(ins[0], *outs), dtype=[dtype] * 2))

    data = emit(relax.op.reshape(as_dtype(x, dtype), (count, rows, rows)))
    work, determinants = emit(kernel(compute, data, name="elimination"))
    inverses = relax.op.strided_slice(work, [2], [rows * jordan], [rows * (1 + jordan)])
    result = relax.op.reshape(emit(inverses) if jordan else determinants, static_shape(x, "x") if jordan else batch)
    return as_dtype(emit(result), dtype_of(x))


def _elimination(data: Any, work: Any, determinants: Any) -> Any:
    """A kernel: each matrix beside the unit matrix, if `work` has room for it, and rows below a pivot made 0 there."""
    count, rows, width = (int(d) for d in work.shape)
    one, zero = tirx.const(1, str(work.dtype)), tirx.const(0, str(work.dtype))
    with IRBuilder() as builder:
        x, w, det = map(T.buffer_proxy, (data, work, determinants))
        with T.serial(0, count) as n:
            kinds = "int32", str(work.dtype)
            place, held = (T.buffer_proxy(T.alloc_buffer((1,), kind, scope="local", layout=None)) for kind in kinds)
            with T.grid(rows, width) as (i, j):
                w[n, i, j] = tirx.if_then_else(j < rows, x[n, i, j % rows], tirx.Select(j == i + rows, one, zero))
            det[n] = one
            with T.serial(0, rows) as step:
                place[0] = step
                with T.serial(0, rows - 1 - step) as below, T.If(_larger(w, n, step, below, place[0])), T.Then():
                    place[0] = step + 1 + below
                with T.serial(0, width) as j:
                    held[0] = w[n, place[0], j]
                    w[n, place[0], j] = w[n, step, j]
                    w[n, step, j] = held[0]
                held[0] = w[n, step, step]
                det[n] = det[n] * tirx.Select(place[0] == step, held[0], -held[0])
                _cleared(w, n, step, held, width > rows)
        return builder.get()


def _larger(w: Any, n: Any, step: Any, below: Any, place: Any) -> Any:
    return tirx.abs(w[n, step + 1 + below, step]) > tirx.abs(w[n, place, step])


def _cleared(w: Any, n: Any, step: Any, held: Any, jordan: bool) -> None:
    """Take the row of a pivot, made 1, off those below it, or off all others; of determinants one of 0 stays."""
    _, rows, width = (int(d) for d in w.shape)
    one = tirx.const(1, str(w.dtype))
    with T.serial(0, width) as j:
        w[n, step, j] = w[n, step, j] / (held[0] if jordan else tirx.Select(held[0] == 0, one, held[0]))
    with T.serial(0, rows) as i, T.If(i != step if jordan else i > step), T.Then():
        held[0] = w[n, i, step]
        with T.serial(0, width) as j:
            w[n, i, j] = w[n, i, j] - held[0] * w[n, step, j]
