"""Grouping: each anchor operation with the epilogue that its kernel computes, as a function of its own.

    y = conv2d(x, w); z = add(y, b); r = relu(z)   ->   r = conv2d_add_relu(x, w, b)

Still Relax: a group is a private function of the module in logical shapes, called from `main`. Equal groups are one
function called several times. Operations nothing here can take are left in `main` for the generic way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.group import CONSTANTS, GROUP
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.core.relax_graph import (
    Rewriter,
    bindings_of,
    dtype_of,
    op_name,
    scalar_of,
    shape_of,
    static_tensor,
)
from tvm_ext.schedules import recipes
from tvm_ext.schedules.scalar_ops import is_elementwise

ELEMENTWISE = "elementwise"
_FLOATS = ("float32", "float64")
#: Times an operator reads its operand, as LLVM gets it, where that is more than once.
READS = {
    "relax.nn.relu": 2, "relax.nn.silu": 2, "relax.nn.gelu": 2, "relax.nn.leakyrelu": 3, "relax.nn.gelu_tanh": 21,
    "relax.maximum": 3, "relax.minimum": 3, "relax.clip": 4, "relax.tanh": 5,
}  # fmt: skip
#: Scalar operations of one expression. TVM takes an expression as a tree, so one that reads an operand twice, again
#: and again, would grow without bound; up to this size a kernel compiles in well under a second.
LARGEST_EXPRESSION = 48


@dataclass
class _Group:
    """A group while it grows: bindings in order; the last one is its result."""

    anchor: str
    members: list[relax.VarBinding] = field(default_factory=list)

    @property
    def result(self) -> relax.Var:
        return self.members[-1].var


class GroupOperations(Pass):
    """Greedy grouping in model order; `fusion="none"` makes a group of every single operation."""

    name = "group-operations"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rewriter = Rewriter(mod, ctx)
        grouper = _Grouper(rewriter, fuse=ctx.options.fusion == "default")
        groups = grouper.groups()
        last = {g.result: g for g in groups}
        inner = {b.var for g in groups for b in g.members[:-1]}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            if binding.var in inner:
                return None
            if (group := last.get(binding.var)) is None:
                rw.skip(grouper.why_not(binding))
                return None
            return _call(group, rw)

        result = rewriter.rewrite(visit)
        return PassResult(relax.transform.DeadCodeElimination()(result.mod), result.fired, result.skipped)


class _Grouper:
    def __init__(self, rewriter: Rewriter, fuse: bool) -> None:
        self._rw, self._fuse = rewriter, fuse
        self._anchors = {a for r in recipes() for a in r.anchors} - {ELEMENTWISE}
        self._of: dict[relax.Var, _Group] = {}
        self._groups: list[_Group] = []
        self._size: dict[relax.Var, int] = {}
        self._position = {b.var: i for i, b in enumerate(bindings_of(rewriter.function))}

    def groups(self) -> list[_Group]:
        for binding in bindings_of(self._rw.function):
            if self.why_not(binding):
                continue
            name = op_name(binding.value)
            if name in self._anchors:
                self._open(name, binding)
            else:
                self._join(binding)
        return self._groups

    def why_not(self, binding: relax.VarBinding) -> str:
        """Why an operation is in no group; "" if it is in one."""
        name = op_name(binding.value)
        if name not in self._anchors and not is_elementwise(name):
            return f"{name or 'this expression'} is neither an anchor nor elementwise"
        if not static_tensor(binding.var) or not all(_operand(a) for a in binding.value.args):
            return f"{name} has a shape that is only known at run time"
        if name not in self._anchors and not _same_float(binding):
            return f"{name} of {dtype_of(binding.var)}: elementwise kernels compute float32 and float64"
        return ""

    def _open(self, anchor: str, *members: relax.VarBinding) -> _Group:
        group = _Group(anchor, list(members))
        self._groups.append(group)
        self._of.update({b.var: group for b in members})
        self._size.update({b.var: 1 for b in members})
        return group

    def _join(self, binding: relax.VarBinding) -> None:
        """Put an elementwise operation behind the group of one operand, with the elementwise groups of the others."""
        operands = dict.fromkeys(binding.value.args) if self._fuse else {}
        feeding = [self._of[a] for a in operands if self._absorbable(a, binding)]
        if (size := self._expression(binding, feeding)) > LARGEST_EXPRESSION:
            self._rw.skip(f"fused, its expression would have {size} operations", binding.var)
            feeding, size = [], 1
        self._size[binding.var] = size
        anchored = [g for g in feeding if g.anchor != ELEMENTWISE]
        target = max(anchored or feeding, key=_work) if feeding else self._open(ELEMENTWISE)
        for chain in feeding:
            if chain is not target and chain.anchor == ELEMENTWISE:
                target.members.extend(chain.members)
                self._groups.remove(chain)
        target.members.sort(key=lambda b: self._position[b.var])
        target.members.append(binding)
        self._of.update({b.var: target for b in target.members})

    def _expression(self, binding: relax.VarBinding, feeding: Sequence[_Group]) -> int:
        """Operations of the scalar expression behind a binding whose operands come from the groups `feeding`."""
        inside = {g.result for g in feeding}
        fused = sum(self._size[a] for a in binding.value.args if isinstance(a, relax.Var) and a in inside)
        return 1 + READS.get(op_name(binding.value), 1) * fused

    def _absorbable(self, operand: Any, binding: relax.VarBinding) -> bool:
        group = self._of.get(operand) if isinstance(operand, relax.Var) else None
        return (
            group is not None
            and group.result.same_as(operand)
            and len(set(self._rw.uses[operand])) == 1
            and shape_of(operand) == shape_of(binding.var)
        )


def _work(group: _Group) -> int:
    """Multiply-adds of the anchor. The largest takes a shared epilogue: in residual networks the kernels of a stage
    are then the same with and without a projection on the other branch."""
    anchor = group.members[0].value
    if group.anchor == ELEMENTWISE or len(anchor.args) < 2:
        return 0
    result, weight = shape_of(group.members[0].var) or (), shape_of(anchor.args[1]) or ()
    depth = math.prod(weight[1:]) if len(weight) > 2 else weight[0] if weight else 1
    return math.prod(result) * depth


def _operand(expr: Any) -> bool:
    return not isinstance(expr, relax.Var | GenericConst) or static_tensor(expr)


def _same_float(binding: relax.VarBinding) -> bool:
    dtype = dtype_of(binding.var)
    tensors = [a for a in binding.value.args if isinstance(a, relax.Var | GenericConst)]
    return dtype in _FLOATS and all(dtype_of(a) == dtype for a in tensors)


def _call(group: _Group, rw: Rewriter) -> Call:
    """Write the group's function into the module and return a call of it."""
    function, args = _function(group)
    name = "_".join(["fused", *(_short(op_name(b.value)) for b in group.members)])
    gvar: GlobalVar = rw.add_function(function, name[:80])
    rw.absorb(*(b.var for b in group.members[:-1]))
    rw.fire(f"{gvar.name_hint}: {len(group.members)} operations in one kernel")
    return Call(gvar, args)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _function(group: _Group) -> tuple[relax.Function, list[Any]]:
    """The group as a function of its outside operands, and those operands."""
    operands: list[Any] = []
    params: list[relax.Var] = []
    inside: dict[relax.Var, relax.Var] = {}

    def outside(expr: Any) -> relax.Var:
        for operand, param in zip(operands, params, strict=True):
            if operand.same_as(expr):
                return param
        operands.append(expr)
        params.append(relax.Var(f"p{len(params)}", expr.ty))
        return params[-1]

    def inner(expr: Any) -> Any:
        if isinstance(expr, relax.Var):
            return inside[expr] if expr in inside else outside(expr)
        return outside(expr) if isinstance(expr, GenericConst) and scalar_of(expr) is None else expr

    bindings = []
    for i, binding in enumerate(group.members):
        call = binding.value
        value = Call(call.op, [inner(a) for a in call.args], call.attrs, call.ty_args, ret_ty=call.ty)
        kind = relax.Var if i == len(group.members) - 1 else relax.DataflowVar
        inside[binding.var] = kind(f"v{i}", binding.var.ty)
        bindings.append(relax.VarBinding(inside[binding.var], value))
    constants = [i for i, o in enumerate(operands) if isinstance(o, GenericConst)]
    result = inside[group.result]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    function = relax.Function(params, body, result.ty)
    return function.with_attr({GROUP: group.anchor, CONSTANTS: constants, "Primitive": 1}), operands
