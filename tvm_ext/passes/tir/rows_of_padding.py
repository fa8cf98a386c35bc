"""Lowers the annotation :data:`...schedules.blocked.problem.ROWS_INSIDE`: products with rows of padding are left out.

for ri in ...:  # ("pad", 1, 8)                     if max(row) >= 1 and min(row) < 8:
    for p in unroll(7):                       ->        for ri in ...:
        y[p] += pad[n, c, row, x] * w                       for p in unroll(7): y[p] += pad[n, c, row, x] * w
"""

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from ...core.graph.nodes import nodes_by_kind, substituted
from ...schedules.blocked.problem import ROWS_INSIDE

#: The dimension of the rows in an image, (N, C, H, W) or in blocks of channels.
_ROW = 2


def leave_out_padding(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel without blocks whose buffers are not flat, cut so; one without annotations is left as it is."""
    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, _conditional)))


def _conditional(loop: tirx.For) -> Any:
    """The loop, if some row that it reads is of the image; rows grow with the variables of the loops inside."""
    if ROWS_INSIDE not in loop.annotations:
        return loop
    name, first, end = loop.annotations[ROWS_INSIDE]
    rest = {key: value for key, value in loop.annotations.items() if key != ROWS_INSIDE}
    loop = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, rest, loop.step)
    loads, loops = nodes_by_kind(loop, TensorLoad, tirx.For)
    rows = [load.indices[_ROW] for load in loads if load.source.name == name]
    low = {inner.loop_var: inner.min for inner in loops}
    high = {inner.loop_var: inner.min + inner.extent - 1 for inner in loops}
    assert rows, f"no load of {name} in the loop whose rows of padding are left out"
    least, most = substituted(rows[0], low), substituted(rows[0], high)
    return tirx.IfThenElse(tirx.all(most >= int(first), least < int(end)), loop, None)
