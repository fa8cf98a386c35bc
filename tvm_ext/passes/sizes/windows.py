"""Sizes of images behind convolutions and pools, as expressions of those before.

conv2d of H, kernel 3, stride 2, padding 1 and 1   ->   (H + 1) // 2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call

from tvm_ext.core.graph.relax_graph import bindings_of, op_name, shape_of


def behind_windows(value: Any, function: relax.Function | None, before: Sequence[Any]) -> Iterator[Any]:
    """What dimensions of a result may be: of each symbolic dimension before, as each window rounds it.

    Args:
        value: what is bound; of a call of a group, `function` is the group.
        before: extents of the operands' dimensions.
    """
    calls = [value] if function is None else [b.value for b in bindings_of(function)]
    for call in calls:
        for shift, stride in _windows(call):
            for dim in before:
                if not isinstance(dim, int):
                    moved = dim + shift if shift >= 0 else dim - (-shift)
                    yield tirx.floordiv(moved, tirx.IntImm("int64", stride)) if stride > 1 else moved


def _windows(call: Any) -> Iterator[tuple[int, int]]:
    """(c, s) of each axis of a convolution's or pool's window: n elements become (n + c) // s."""
    attrs = call.attrs if isinstance(call, Call) and op_name(call).startswith("relax.nn.") else None
    if (
        attrs is None
        or not hasattr(attrs, "strides")
        or not hasattr(attrs, "padding")
        or hasattr(attrs, "output_padding")
    ):
        return
    strides, padding = [int(s) for s in attrs.strides], [int(p) for p in attrs.padding]
    dilation, count = [int(d) for d in attrs.dilation], len(strides)
    if hasattr(attrs, "pool_size"):
        kernel: Sequence[int] = [int(k) for k in attrs.pool_size]
    else:
        weight = shape_of(call.args[1]) or ()
        kernel = [weight[str(attrs.kernel_layout).index(axis)] for axis in "DHW"[3 - count :]]
    for axis in range(count):
        padded = padding[axis] + padding[axis + count if len(padding) == 2 * count else axis]
        rounded = strides[axis] - 1 if getattr(attrs, "ceil_mode", False) else 0
        shift = padded - dilation[axis] * (kernel[axis] - 1) - 1 + strides[axis] + rounded
        yield shift, strides[axis]
