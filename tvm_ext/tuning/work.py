"""Floating-point operations of a group, counted as the operation states them: what GFLOP/s are relative to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.group import Group
from ..core.relax_graph import op_name, shape_of


def flops_of(group: Group) -> float:
    """Multiplications and additions of a group: two a step of a sum of products, one an element of anything else.

    A kernel that transforms the sums (Winograd) does fewer; its rate counts those of the direct way, as is customary.
    """
    return float(sum(_of_call(binding.value) for binding in group.bindings))


def _of_call(value: Any) -> int:
    result = math.prod(shape_of(value) or ())
    operands: list[Sequence[int]] = [shape_of(a) or () for a in getattr(value, "args", ())]
    name = op_name(value)
    if name.startswith("relax.nn.conv") and not name.endswith("transpose"):
        return 2 * result * math.prod(operands[1][1:])
    if name.startswith("relax.nn.conv"):  # transposed: each input element meets each weight of its channel
        return 2 * math.prod(operands[0]) * math.prod(operands[1][1:])
    if name == "relax.matmul":
        return 2 * result * operands[0][-1]
    if name == "relax.nn.attention":
        queries, keys, values = operands[:3]  # (batch, sequence, heads, size)
        return 2 * math.prod(queries[:3]) * keys[1] * (queries[3] + values[3])
    window = getattr(getattr(value, "attrs", None), "pool_size", None)
    if window is not None:
        return result * math.prod(int(size) for size in window)
    return max([result, *(math.prod(shape) for shape in operands)])
