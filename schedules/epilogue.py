"""The epilogue of a group as a scalar expression at one index: shared by every recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.tirx import FloatImm, IntImm

from tvm_ext.core.group import Group, Param
from tvm_ext.core.layout import Layout
from tvm_ext.core.relax_graph import scalar_of, shape_of

from .scalar_ops import scalar_call

Index = Sequence[Any]


def placeholders(group: Group, layouts: Sequence[Layout]) -> list[te.Tensor]:
    """One TE placeholder for each parameter of the group, in physical shape."""
    return [
        te.placeholder(layout.physical_shape(p.shape), dtype=p.dtype, name=f"p{i}")
        for i, (p, layout) in enumerate(zip(group.params, layouts, strict=True))
    ]


class Epilogue:
    """Everything of a group but its anchor, evaluated at a logical index.

    Args:
        group: the group.
        tensors: TE placeholders of its parameters.
        layouts: layout of each parameter.
    """

    def __init__(self, group: Group, tensors: Sequence[te.Tensor], layouts: Sequence[Layout]) -> None:
        self.group = group
        self._of: Mapping[Any, tuple[Param, te.Tensor, Layout]] = {
            p.var: (p, t, layout) for p, t, layout in zip(group.params, tensors, layouts, strict=True)
        }

    def __call__(self, index: Index, anchor: Any = None) -> Any:
        """The group's result at a logical index of its result, given the anchor's value there."""
        return self._value(self.group.result, index, anchor, {})

    def _value(self, expr: Any, index: Index, anchor: Any, seen: dict[Any, Any]) -> Any:
        if isinstance(expr, FloatImm | IntImm):
            return tirx.const(expr.value, self.group.dtype)
        if (scalar := scalar_of(expr)) is not None:
            return tirx.const(scalar, self.group.dtype)
        if expr in seen:
            return seen[expr]
        if self.group.anchor_var is not None and expr.same_as(self.group.anchor_var):
            return anchor
        if expr in self._of:
            seen[expr] = self._load(expr, index)
            return seen[expr]
        call: Call = self.group.definitions[expr]
        operands = [self._value(a, _broadcast_index(a, index), anchor, seen) for a in call.args]
        seen[expr] = scalar_call(call, operands)
        return seen[expr]

    def _load(self, var: relax.Var, index: Index) -> Any:
        param, tensor, layout = self._of[var]
        return tensor(*layout.index(_broadcast_index(var, index))) if param.shape else tensor()


def _broadcast_index(expr: Any, index: Index) -> Index:
    """Numpy broadcasting: the index of an operand at an index of the result."""
    shape = shape_of(expr) if isinstance(expr, relax.Var) else None
    if shape is None:
        return index
    tail = list(index)[len(index) - len(shape) :] if shape else []
    return [0 if d == 1 else i for d, i in zip(shape, tail, strict=True)]


def blocked_layout(shape: Sequence[int], lanes: int, rank: int = 4, axis: int = 1) -> Layout:
    """Layout of an epilogue operand whose result is NCHW{lanes}c: blocked where it has that axis, else as it is."""
    own = axis - (rank - len(shape))
    if own >= 0 and shape[own] != 1:
        return Layout.blocked(len(shape), lanes, own)
    return Layout.plain(len(shape))
