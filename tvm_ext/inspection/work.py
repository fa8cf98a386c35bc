"""Floating-point operations and bytes: of the kernels of a compiled model, and of operators before they are kernels.

    work_of_kernels(compiled.report)["conv2d_add_relu"]    Work(flops=236027904, bytes=...)   one call of it
    work_of_call(binding.value)                            the same of one Relax call, in logical shapes

What counts as an operation is defined in :mod:`tvm_ext.ops.work`: two a step of a sum of products, one an
element of anything else, none for what only moves values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.group import Group
from ..ops.table import of
from ..ops.work import bytes_of, flops_of, flops_of_call, read_in_part


@dataclass(frozen=True)
class Work:
    """What something has to do.

    Attributes:
        flops: floating-point (or integer) operations; None if they are not known.
        bytes: of operands and results, each once; None if they are not known.
    """

    flops: float | None
    bytes: int | None

    @property
    def intensity(self) -> float | None:
        """Operations a byte; None if either is unknown, or there are no bytes."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None

    def __add__(self, other: Work) -> Work:
        """Both together; what one does not know, the sum does not know."""
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        size = None if self.bytes is None or other.bytes is None else self.bytes + other.bytes
        return Work(flops, size)


NOTHING = Work(0.0, 0)


def total(works: Iterable[Work]) -> Work:
    """The sum of all operations, and of all bytes."""
    return sum(works, NOTHING)


def work_of_kernels(report: Mapping[str, Any]) -> dict[str, Work]:
    """Kernel -> the work of one call; of a report of an older version, which has no figures, nothing is known."""
    return {k["name"]: Work(k.get("flops"), k.get("bytes")) for k in report.get("kernels", ())}


def work_of_call(value: Any) -> Work:
    """The work of one call of a Relax operator: operands (tuples too) and result in logical shapes.

    Of a table that rows are taken of, only the rows count.
    """
    from ..core.graph.relax_graph import op_name

    operands = [field for a in getattr(value, "args", ()) for field in getattr(a, "fields", [a])]
    read = [bytes_of(operand) for operand in operands if getattr(operand, "ty", None) is not None]
    if read and of(op_name(value)).part_read:
        read[0] = min(read[0], bytes_of(value))
    return Work(float(flops_of_call(value)), sum(read) + bytes_of(value))


def work_of_group(group: Group) -> Work:
    """The work of a group as one kernel: its parameters are read and its result is written, in logical shapes."""
    partial = read_in_part(group)
    read = sum(partial.get(number, bytes_of(param.var)) for number, param in enumerate(group.params))
    return Work(flops_of(group), read + bytes_of(group.result))
