"""The epilogue of a group as a scalar expression at one index: shared by every recipe."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call
from tvm.tirx import FloatImm, IntImm

from tvm_ext.core.graph.relax_graph import dtype_of, op_name, scalar_of, shape_of
from tvm_ext.core.recipe import Group, Layout, Layouts, Param
from tvm_ext.ops.scalars.expressions import let
from tvm_ext.ops.scalars.operators import scalar_call
from tvm_ext.ops.table import of

Index = Sequence[Any]
Values = Mapping[relax.Var, Any]


class Epilogue:
    """Everything of a group behind its anchor, evaluated at a logical index.

    Args:
        group: the group.
        tensors: what stands for its parameters, to be called with physical indices.
        layouts: layout of each parameter.
    """

    def __init__(self, group: Group, tensors: Sequence[Any], layouts: Sequence[Layout]) -> None:
        self.group = group
        self._of: Mapping[Any, tuple[Param, Any, Layout]] = {
            p.var: (p, t, layout) for p, t, layout in zip(group.params, tensors, layouts, strict=True)
        }
        self._reads = collections.Counter(a for b in group.behind for a in b.value.args if isinstance(a, relax.Var))

    def __call__(self, index: Index, anchor: Any = None, beside: Values | None = None) -> Any:
        """The group's result at a logical index of its result, given the values there of its anchors.

        A value that several operations read is bound to a name: let v0 = ... in let v1 = f(v0, v0) in ...
        """
        own = self.group.anchor_var
        if own is None:
            return self._result(self.group.behind, index, {})
        return self._bind(own, anchor, lambda values: self._result(self.group.behind, index, values), beside or {})

    def _result(self, todo: Sequence[Any], index: Index, values: Values) -> Any:
        """The result, once all bindings of `todo`, in order, are computed."""
        if not todo:
            return values[self.group.result]
        call: Call = todo[0].value
        operands = [self._operand(a, call, self._at(call, k, index), values) for k, a in enumerate(call.args)]
        return self._bind(todo[0].var, scalar_call(call, operands), lambda v: self._result(todo[1:], index, v), values)

    def _bind(self, var: relax.Var, value: Any, rest: Callable[[Values], Any], values: Values) -> Any:
        if self._reads[var] > 1:
            return let(value, lambda name: rest({**values, var: name}))
        return rest({**values, var: value})

    @staticmethod
    def _at(call: Call, number: int, index: Index) -> Index:
        """The index of an operand: scales and zero points of an axis have that one only; lanes beyond its end, whose
        value nothing reads, have the last ones."""
        if number and of(op_name(call)).per_axis and (own := shape_of(call.args[number])):
            rank = len(shape_of(call) or ())
            return [tirx.min(index[len(index) - rank + int(call.attrs.axis) % rank], own[0] - 1)]
        return index

    def _operand(self, expr: Any, call: Call, index: Index, values: Values) -> Any:
        if isinstance(expr, FloatImm | IntImm):
            return tirx.const(expr.value, dtype_of(call))
        if (scalar := scalar_of(expr)) is not None:
            return tirx.const(scalar, dtype_of(expr))
        return values[expr] if expr in values else self._load(expr, index)

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


def blocked_layouts(group: Group, lanes: int, own: Mapping[relax.Var, Layout]) -> Layouts:
    """NCHW{lanes}c for the result and operands of the epilogue (:func:`blocked_layout`), and `own` for the parameters
    that it names by their variable."""
    params = (own.get(p.var) or blocked_layout(p.shape, lanes) for p in group.params)
    return Layouts(tuple(params), Layout.blocked(4, lanes))


def operand_layouts(params: Sequence[Param], shape: Sequence[int], result: Layout) -> list[Layout]:
    """Layouts of operands that broadcast to a result of `shape` in layout `result`: the same where they are whole."""

    def of(own: tuple[int, ...]) -> Layout:
        if own == tuple(shape) or result.block is None:
            return result if own == tuple(shape) else Layout.plain(len(own))
        return blocked_layout(own, result.block[1], len(shape), result.block[0])

    return [of(p.shape) for p in params]
