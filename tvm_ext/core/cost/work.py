"""What an operation has to do: floating-point operations as it states them, and bytes of its operands and results.

Rates (GFLOP/s, GB/s) are relative to these; a kernel may do fewer (Winograd) or move more (what does not fit a cache).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from ...ops.table import of
from ..graph.relax_graph import op_name, shape_of
from ..group import Group
from .sharing import Sharing


@dataclass(frozen=True)
class VectorWork:
    """What a kernel does whose instructions are those of vectors, loads and stores among them.

    Attributes:
        operations: f32 operations; a number that is loaded or stored is one.
        rows: that threads share whole; None if any part of the work can be a thread's.
    """

    operations: float
    rows: int | None = None

    @staticmethod
    def of(group: Group) -> VectorWork:
        """What the operators of a group state: :func:`flops_of`, and one for 4 bytes that it reads or writes, once."""
        partial = read_in_part(group)
        read = sum(partial.get(number, bytes_of(param.var)) for number, param in enumerate(group.params))
        return VectorWork(flops_of(group) + (read + bytes_of(group.result)) / 4)

    def shared(self, threads: int) -> Sharing:
        """How so many threads share it."""
        return Sharing(threads, threads, 1) if self.rows is None else Sharing.of_rows(self.rows, threads)


def flops_of(group: Group) -> float:
    """Multiplications and additions of a group: two a step of a sum of products, one an element of anything else.

    A kernel that transforms the sums (Winograd) does fewer; its rate counts those of the direct way, as is customary.
    """
    return float(sum(flops_of_call(binding.value) for binding in group.bindings))


def flops_of_call(value: Any) -> int:
    """:func:`flops_of` for one call of an operator; 0 for what only moves values."""
    if not op_name(value):
        return 0
    operands = [shape_of(operand) or () for operand in value.args]
    return of(op_name(value)).count(value, math.prod(shape_of(value) or ()), operands)


def bytes_of(value: Any) -> int:
    """Bytes of a tensor, or of all tensors of a tuple; 0 for what has no static shape."""
    if isinstance(value.ty, relax.TupleType):
        return sum(_bytes_of_type(field) for field in value.ty.fields)
    return _bytes_of_type(value.ty)


def _bytes_of_type(ty: Any) -> int:
    shape = shape_of(relax.Var("t", ty))
    if shape is None:
        return 0
    return math.prod(shape) * -(-tvm.DataType(str(ty.dtype)).bits // 8)


def read_in_part(group: Group) -> Mapping[int, int]:
    """Bytes a group reads of those parameters of which it needs a part only, such as a table that rows are taken of.

    Returns:
        Number of the parameter -> bytes.
    """
    index = {p.var: i for i, p in enumerate(group.params)}
    parts: dict[int, int] = {}
    whole: set[int] = set()
    for value in (binding.value for binding in group.bindings):
        for place, operand in enumerate(getattr(value, "args", ())):
            numbers = [index[part] for part in getattr(operand, "fields", [operand]) if part in index]
            if place == 0 and of(op_name(value)).part_read:
                parts.update({n: parts.get(n, 0) + bytes_of(value) for n in numbers})
            else:
                whole.update(numbers)
    return {n: min(size, bytes_of(group.params[n].var)) for n, size in parts.items() if n not in whole}
