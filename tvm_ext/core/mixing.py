"""Which axes of known bound and unknown size an anchor mixes: what it computes of an element depends on others there.

What a kernel computes beyond the run-time extents is garbage that nothing reads. That holds for any kernel, as long as
its operation keeps an axis: rows of a matmul, the batch of a convolution. Where it mixes one, such as the inner axis of
a matmul, or where the places of its elements depend on the size, such as behind the first operand of a concatenation,
only a kernel that knows the extent is right.
"""

from collections.abc import Iterator, Sequence

import tvm_ffi

from tvm_ext.ops.row_rules import Cut, Rows, Site
from tvm_ext.ops.table import of

from .group import Group, Param


def mixes_symbolic(group: Group) -> str | None:
    """The first axis whose size is known at run time and that the anchor mixes, in words; None if there is none."""
    if group.extents is None or group.call is None:
        return None
    operands = [group.param(a) for arg in group.call.args for a in getattr(arg, "fields", [arg])]
    for param in (p for p in operands if p is not None):
        for axis in _symbolic(group, param):
            if _mixes(group, operands, param, axis):
                size = f"whose size (up to {param.shape[axis]}) is known at run time"
                return f"{group.anchor} works over axis {axis}, {size}"
    return None


def _symbolic(group: Group, param: Param) -> Iterator[int]:
    """Axes of a parameter whose extents are no numbers."""
    return (axis for axis in range(len(param.shape)) if not isinstance(group.extent(param, axis), int))


def _mixes(group: Group, operands: Sequence[Param | None], param: Param, axis: int) -> bool:
    """What the rule of the anchor says (:mod:`tvm_ext.ops.row_rules`), where indices of that axis are the rows; of an
    operator without one, that it does. Operands of as many axes, and the result, are cut alike if they have it too."""
    rule, extent, rank = of(group.anchor).row_rule, group.extent(param, axis), len(param.shape)

    def cut(other: Param | None, shape: Sequence[int]) -> Cut:
        alike = len(shape) == rank and tvm_ffi.structural_equal(group.extent(other, axis), extent)
        return Rows(axis, 1, tuple(shape)) if alike else None

    cuts = tuple(None if p is None else cut(p, p.shape) for p in operands)
    return rule is None or rule(Site(group.call, cuts, cut(None, group.shape))) is not None
