"""Sizes behind convolutions and pools, as expressions of those before; and behind slices, of their bounds.

conv2d of H, kernel 3, stride 2, padding 1 and 1   ->   (H + 1) // 2
x[-13:26:2] of S rows                              ->   (min(S, 26) - max(S - 13, 0) + 1) // 2
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call

from tvm_ext.core.graph.relax_graph import bindings_of, op_name, shape_of

from .solver import Solver


def behind_windows(
    values: Sequence[Any], functions: Sequence[relax.Function], before: Sequence[Any], solver: Solver
) -> Iterator[tuple[int, Any]]:
    """(axis, extent) of results of convolutions and pools: what their windows make of the dimension before.

    Args:
        values: what is bound, at each size; of calls of groups, `functions` are the groups.
        before: extents of the operands' dimensions.
    """
    for calls in _calls(values, functions):
        windows = [tuple(_windows(call)) for call in calls]
        for axis, shift, stride in windows[0] if len(set(windows)) == 1 else ():  # not of pads that grow with the size
            sizes = tuple((shape_of(call.args[0]) or ())[axis] for call in calls)
            dim = next((d for d in before if not isinstance(d, int) and solver.at_probes(d) == sizes), None)
            if dim is not None:
                moved = dim + shift if shift >= 0 else dim - (-shift)
                yield axis, tirx.floordiv(moved, tirx.IntImm("int64", stride)) if stride > 1 else moved


def behind_slices(
    values: Sequence[Any], functions: Sequence[relax.Function], axis: int, sizes: Sequence[int], solver: Solver
) -> Any:
    """The extent of an axis of a slice, where its bounds are functions of sizes that are known; else None.

    Args:
        values, functions: see :func:`behind_windows`.
        sizes: of the axis, at each size.
    """
    for calls in _calls(values, functions):
        bounds = [_bounds(call, axis) for call in calls]
        ranges = [bound for bound in bounds if bound is not None]
        if len(ranges) < len(bounds) or [*map(len, ranges)] != [*sizes] or len({r.step for r in ranges}) > 1:
            continue
        first, last = (solver.solve(ends) for ends in ([r.start for r in ranges], [r.stop for r in ranges]))
        if first is not None and last is not None:
            step = abs(ranges[0].step)
            span = last - first if ranges[0].step > 0 else first - last
            return tirx.floordiv(span + (step - 1), tirx.IntImm("int64", step)) if step > 1 else span
    return None


def _calls(values: Sequence[Any], functions: Sequence[relax.Function]) -> Iterator[tuple[Any, ...]]:
    """What is bound, at each size; of calls of groups, what is in those."""
    rows = [[b.value for b in bindings_of(function)] for function in functions] or [[value] for value in values]
    return zip(*rows, strict=False)


def _bounds(call: Any, axis: int) -> range | None:
    """What a slice takes of an axis; None if it is none, or takes all of it."""
    if not isinstance(call, Call) or op_name(call) != "relax.strided_slice":
        return None
    size, rank = (shape_of(call.args[0]) or ())[axis : axis + 1], len(shape_of(call.args[0]) or ())
    operands = [[int(getattr(field, "value", field)) for field in operand.fields] for operand in call.args[1:]]
    axes, begin, end, *steps = operands
    for place, number in enumerate(axes):
        if number % max(rank, 1) == axis and size:
            return range(*slice(begin[place], end[place], steps[0][place] if steps else 1).indices(size[0]))
    return None


def _windows(call: Any) -> Iterator[tuple[int, int, int]]:
    """(axis, c, s) of each dimension of a convolution's or pool's window: n elements become (n + c) // s."""
    attrs: Any = call.attrs if isinstance(call, Call) and op_name(call).startswith("relax.nn.") else None
    has_strides, has_padding, transposed = (hasattr(attrs, n) for n in ("strides", "padding", "output_padding"))
    if not has_strides or not has_padding or transposed:
        return
    strides, padding = [int(s) for s in attrs.strides], [int(p) for p in attrs.padding]
    dilation, count = [int(d) for d in attrs.dilation], len(strides)
    if hasattr(attrs, "pool_size"):
        kernel: Sequence[int] = [int(k) for k in attrs.pool_size]
    else:
        weight = shape_of(call.args[1]) or ()
        kernel = [weight[str(attrs.kernel_layout).index(axis)] for axis in "DHW"[3 - count :]]
    layout = str(attrs.layout if hasattr(attrs, "pool_size") else attrs.data_layout)
    for axis, name in enumerate("DHW"[3 - count :]):
        padded = padding[axis] + padding[axis + count if len(padding) == 2 * count else axis]
        shift = padded - dilation[axis] * (kernel[axis] - 1) - 1 + strides[axis]
        if getattr(attrs, "ceil_mode", False):  # a last window that would begin behind the input is none
            shift = min(shift, padding[axis]) + strides[axis] - 1
        yield layout.index(name), shift, strides[axis]
