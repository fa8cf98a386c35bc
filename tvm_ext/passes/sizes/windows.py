"""Sizes of images behind convolutions and pools, as expressions of those before.

conv2d of H, kernel 3, stride 2, padding 1 and 1   ->   (H + 1) // 2
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
    rows = [[b.value for b in bindings_of(function)] for function in functions] or [[value] for value in values]
    for calls in zip(*rows, strict=False):
        windows = [tuple(_windows(call)) for call in calls]
        for axis, shift, stride in windows[0] if len(set(windows)) == 1 else ():  # not of pads that grow with the size
            sizes = tuple((shape_of(call.args[0]) or ())[axis] for call in calls)
            dim = next((d for d in before if not isinstance(d, int) and solver.at_probes(d) == sizes), None)
            if dim is not None:
                moved = dim + shift if shift >= 0 else dim - (-shift)
                yield axis, tirx.floordiv(moved, tirx.IntImm("int64", stride)) if stride > 1 else moved


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
