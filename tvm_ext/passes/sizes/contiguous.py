"""Kernels that hand their buffers to functions which take elements for contiguous: they get a copy that is.

    sort(x)   ->   for i, j in grid(N, S): t[i * S + j] = x[i, j];  sort(t)         # x is 512 wide, S are in use

TVM's sorting functions read an array of a shape and no strides. At the bound, that is the buffer.
"""

import functools
import math
from collections.abc import Collection
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from ...core.graph.nodes import substituted


def with_contiguous(function: tirx.PrimFunc, places: Collection[int], results: int) -> tirx.PrimFunc:
    """A kernel whose parameters at some places are copied to memory of its own before, or from there if results.

    Args:
        function: uses these parameters as a whole only.
        places: of parameters.
        results: how many of the last parameters are results.
    """
    rows = {function.params[place]: _rows(function.params[place]) for place in places}
    body = substituted(function.body, rows)
    first = len(function.params) - results
    before = [_copied(function.params[p], rows[function.params[p]], into=True) for p in places if p < first]
    after = [_copied(function.params[p], rows[function.params[p]], into=False) for p in places if p >= first]
    block = SBlock([], [], [], "contiguous", tirx.SeqStmt([*before, body, *after]), alloc_buffers=list(rows.values()))
    return function.with_body(SBlockRealize([], True, block))


def _rows(buffer: Any) -> Any:
    return tirx.decl_buffer([math.prod(map(int, buffer.ty.shape))], buffer.ty.dtype, f"{buffer.name}_rows")


def _copied(buffer: Any, rows: Any, into: bool) -> Any:
    """The loops that copy all elements of a buffer to where they follow each other, or from there."""
    shape = list(buffer.ty.shape)
    index = [tirx.Var(f"i{axis}", "int64") for axis in range(len(shape))]
    flat, _ = functools.reduce(lambda a, b: (a[0] * b[1] + b[0], b[1]), zip(index, shape, strict=True))
    if into:
        body = tirx.BufferStore(rows, tirx.BufferLoad(buffer, index), [flat])
    else:
        body = tirx.BufferStore(buffer, tirx.BufferLoad(rows, [flat]), index)
    for var, extent in zip(reversed(index), reversed(shape), strict=True):
        body = tirx.For(var, tirx.IntImm("int64", 0), tirx.IntImm("int64", int(extent)), tirx.ForKind.SERIAL, body)
    return body
