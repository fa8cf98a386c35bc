"""What an operation has to do: floating-point operations as it states them, and bytes of its operands and results.

Rates (GFLOP/s, GB/s) are relative to these; a kernel may do fewer (Winograd) or move more (what does not fit a cache).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.cost.size import bytes_of
from .table import of

if TYPE_CHECKING:
    from ..core.group import Group


def flops_of(group: Group) -> float:
    """Multiplications and additions of a group: two a step of a sum of products, one an element of anything else.

    A kernel that transforms the sums (Winograd) does fewer; its rate counts those of the direct way, as is customary.
    """
    return float(sum(flops_of_call(binding.value) for binding in group.bindings))


def flops_of_call(value: Any) -> int:
    """:func:`flops_of` for one call of an operator; 0 for what only moves values."""
    from ..core.graph.relax_graph import op_name, shape_of

    if not op_name(value):
        return 0
    operands = [shape_of(operand) or () for operand in value.args]
    return of(op_name(value)).count(value, math.prod(shape_of(value) or ()), operands)


def read_in_part(group: Group) -> Mapping[int, int]:
    """Bytes a group reads of those parameters of which it needs a part only, such as a table that rows are taken of.

    Returns:
        Number of the parameter -> bytes.
    """
    from ..core.graph.relax_graph import op_name

    index = {p.var: i for i, p in enumerate(group.params)}
    found: dict[int, int] = {}
    whole: set[int] = set()
    for value in (binding.value for binding in group.bindings):
        for place, operand in enumerate(getattr(value, "args", ())):
            numbers = [index[part] for part in getattr(operand, "fields", [operand]) if part in index]
            if place == 0 and of(op_name(value)).part_read:
                found.update({n: found.get(n, 0) + bytes_of(value) for n in numbers})
            else:
                whole.update(numbers)
    return {n: min(size, bytes_of(group.params[n].var)) for n, size in found.items() if n not in whole}
