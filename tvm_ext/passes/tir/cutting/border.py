"""What an image has behind its edge, at run time: a strip behind the extents, as far as the kernel reads.

x[n, c, H:H+2, 0:W+1] = 0;  x[n, c, 0:H, W:W+1] = 0          for a kernel that reads two rows and a column beyond
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx

from .affine import Arithmetic, UnboundedError
from .needs import Needs
from .statements import SERIAL

#: Innermost dimensions of up to so many elements are written as one vector.
_LANES = 64


def border(buffer: Any, number: float, extents: Sequence[Any], needs: Needs, arithmetic: Arithmetic) -> Iterator[Any]:
    """Statements that write a number behind the extents of a parameter.

    Args:
        extents: of each dimension; None where it is the buffer's own.
    """
    shape = [int(d) for d in buffer.ty.shape]
    reads = [_reach(buffer, d, size, needs, arithmetic) for d, size in enumerate(shape)]
    if any(read is None for read in reads):
        return
    for d, extent in enumerate(extents):
        if extent is None or shape[d] == 1:
            continue
        beyond = arithmetic.simplify(reads[d] - extent)
        if isinstance(beyond, tirx.IntImm) and int(beyond) <= 0:
            continue
        ranges = []
        for e, own in enumerate(extents):
            if e == d:
                ranges.append((extent, beyond))
            else:
                ranges.append((tirx.const(0, "int32"), own if own is not None and e < d else reads[e]))
        yield _filled(buffer, ranges, number)


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


def _filled(buffer: Any, ranges: Sequence[tuple[Any, Any]], number: float) -> Any:
    variables = [tirx.Var(f"edge{d}", "int32") for d in range(len(ranges))]
    dtype = str(buffer.ty.dtype)
    value = tirx.const(number if "float" in dtype else int(number), dtype)
    indices = [first + var for (first, _), var in zip(ranges, variables, strict=True)]
    body: Any = tirx.BufferStore(buffer, value, indices)
    for d in range(len(ranges) - 1, -1, -1):
        extent = ranges[d][1]
        last = d == len(ranges) - 1 and isinstance(extent, tirx.IntImm) and int(extent) <= _LANES
        kind = tirx.ForKind.VECTORIZED if last else SERIAL
        body = tirx.For(variables[d], tirx.const(0, "int32"), extent, kind, body)
    return body


def borders(numbers: dict[Any, float], extents: Any, needs: Needs, arithmetic: Arithmetic) -> list[Any]:
    """The statements for several parameters: buffer -> number."""
    return [s for buffer, number in numbers.items() for s in border(buffer, number, extents[buffer], needs, arithmetic)]
