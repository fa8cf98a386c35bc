"""What an image has behind its edge, at run time: a strip behind the extents, as far as the kernel reads.

for row in range(N * C * (H + 2)):                    for a kernel that reads two rows and a column beyond
    n, c, y = row // ..., ...
    x[n, c, y, (W if y < H else 0):W + 1] = 0

All rows are one loop: LLVM unrolls each loop of a nest, with a loop for what is left. Beyond the last image nothing is
written: of what is read there only images are computed that nobody reads.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from .affine import Arithmetic, UnboundedError
from .needs import Needs
from .statements import SERIAL, serial

#: Innermost dimensions of up to so many elements are written as one vector.
_LANES = 64
#: The first dimension that has a border: those before count images and channels.
_IMAGE = 2


def borders(numbers: dict[Any, float], extents: Any, needs: Needs, arithmetic: Arithmetic) -> list[Any]:
    """Statements that write numbers behind the extents of parameters.

    Args:
        numbers: parameter, an image (N, C, H, W) or in blocks of channels -> what stands behind its edge.
        extents: of each parameter's dimensions; None where it is the buffer's own.
    """
    strips = (_strip(buffer, number, extents[buffer], needs, arithmetic) for buffer, number in numbers.items())
    return [strip for strip in strips if strip is not None]


def _strip(buffer: Any, number: float, extents: Sequence[Any], needs: Needs, arithmetic: Arithmetic) -> Any:
    """The loops that write what is read of one parameter behind its extents; None if nothing is."""
    shape = [int(d) for d in buffer.ty.shape]
    reads = [_reach(buffer, d, size, needs, arithmetic) for d, size in enumerate(shape)]
    if any(read is None for read in reads):
        return None
    ends = {
        d: extent for d, extent in enumerate(extents)
        if d >= _IMAGE and extent is not None and shape[d] > 1 and not _within(reads[d] - extent, arithmetic)
    }  # fmt: skip
    if not ends:
        return None
    *outer, last = sorted(ends)
    counts = [extents[d] if d < _IMAGE and extents[d] is not None else reads[d] for d in range(last)]
    row = tirx.Var("row", "int32")
    at: list[Any] = []
    for place, count in enumerate(counts):
        below = functools.reduce(operator.mul, counts[place + 1 :], 1)
        at.append(tirx.floordiv(row if place == 0 else tirx.floormod(row, count * below), below))
    first = tirx.Select(tirx.all(*(at[d] < ends[d] for d in outer)), ends[last], 0) if outer else ends[last]
    ranges = [(first, reads[last] - first), *((0, count) for count in reads[last + 1 :])]
    return serial(row, functools.reduce(operator.mul, counts), _filled(buffer, at, ranges, number))


def _within(beyond: Any, arithmetic: Arithmetic) -> bool:
    beyond = arithmetic.simplify(beyond)
    return isinstance(beyond, tirx.IntImm) and int(beyond) <= 0


def _reach(buffer: Any, d: int, size: int, needs: Needs, arithmetic: Arithmetic) -> Any:
    """Up to which index a dimension is read; None if it is not."""
    bound, largest = tirx.const(size, "int32"), None
    if buffer in needs.opaque:
        return bound
    for load in needs.loads:
        if load.buffer.same_as(buffer):
            try:
                top = needs.top(load.indices[d], load.loops) + 1
            except UnboundedError:
                return bound
            largest = top if largest is None else tirx.max(largest, top)
    return None if largest is None else arithmetic.simplify(tirx.min(bound, tirx.Cast("int32", largest)))


def _filled(buffer: Any, before: Sequence[Any], ranges: Sequence[tuple[Any, Any]], number: float) -> Any:
    """Loops that store a number: where outer dimensions are at `before`, over (first, count) of the others."""
    variables = [tirx.Var(f"edge{d}", "int32") for d in range(len(ranges))]
    dtype = str(buffer.ty.dtype)
    value = tirx.const(number if "float" in dtype else int(number), dtype)
    indices = [first + var for (first, _), var in zip(ranges, variables, strict=True)]
    body: Any = tirx.BufferStore(buffer, value, [*before, *indices])
    for d in range(len(ranges) - 1, -1, -1):
        extent = ranges[d][1]
        last = d == len(ranges) - 1 and isinstance(extent, tirx.IntImm) and int(extent) <= _LANES
        kind = tirx.ForKind.VECTORIZED if last else SERIAL
        body = tirx.For(variables[d], tirx.const(0, "int32"), extent, kind, body)
    return body
