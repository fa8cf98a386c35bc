"""Grouping: each anchor operation with the epilogue that its kernel computes, as a function of its own.

    y = conv2d(x, w); z = add(y, b); r = relu(z)   ->   r = conv2d_add_relu(x, w, b)

Still Relax: a group is a private function of the module in logical shapes, called from `main`. Equal groups are one
function called several times. Operations nothing here can take are left in `main` for the generic way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.cost.residence import with_residence
from tvm_ext.core.fusion import FUSION_MODELS, FusionCandidate, FusionModel
from tvm_ext.core.graph.ownership import Role
from tvm_ext.core.graph.relax_graph import Rewriter, bindings_of, dtype_of, op_name, scalar_of, shape_of, static_tensor
from tvm_ext.core.group import CONSTANTS, GROUP
from tvm_ext.core.numbers.storage import STORED
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.ops.scalars.expression_size import operand_reads
from tvm_ext.ops.scalars.operators import FLOATS, takes
from tvm_ext.ops.table import of
from tvm_ext.schedules import recipes

from ..steps.branches import meeting
from ..steps.decodes import Decodes

ELEMENTWISE = "elementwise"


@dataclass(eq=False)
class _Group:
    """A group while it grows: bindings in order; the last one is its result."""

    anchor: str
    members: list[relax.VarBinding] = field(default_factory=list)

    @property
    def result(self) -> relax.Var:
        return self.members[-1].var

    @property
    def anchored(self) -> relax.VarBinding | None:
        """The anchor's binding; None of an elementwise group."""
        return next((b for b in self.members if op_name(b.value) == self.anchor), None)


class GroupOperations(Pass):
    """Greedy grouping in model order; the option `fusion` decides each step (:mod:`tvm_ext.core.fusion`)."""

    name = "group-operations"
    role = Role.MAKES_KERNELS
    needed = "without it no recipe is used: switch recipes off instead, or compile with fusion='none'"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rewriter = Rewriter(mod, ctx)
        fusion = ctx.options.fusion
        grouper = _Grouper(rewriter, FUSION_MODELS[fusion] if isinstance(fusion, str) else fusion)
        groups = grouper.groups()
        last = {g.result: g for g in groups}
        inner = {b.var for g in groups for b in g.members[:-1]}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            if (group := last.get(binding.var)) is None and binding.var in inner:
                return None
            if group is None:
                return rw.skip(grouper.why_not(binding))
            return _call(group, rw)

        result = rewriter.rewrite(visit)
        grouped = relax.transform.DeadCodeElimination()(result.mod)
        return PassResult(with_residence(grouped, ctx.machine), result.fired, result.skipped)


class _Grouper:
    def __init__(self, rewriter: Rewriter, fusion: FusionModel) -> None:
        self._rw, self._fusion = rewriter, fusion
        self._anchors = {a for r in recipes() for a in r.anchors} - {ELEMENTWISE}
        self._of: dict[relax.Var, _Group] = {}
        self._groups: list[_Group] = []
        self._size: dict[relax.Var, _Size] = {}
        self._branch: dict[relax.Var, _Group] = {}
        self._bindings = {b.var: b for b in bindings_of(rewriter.function)}
        self._position = {var: i for i, var in enumerate(self._bindings)}
        self._reasons = {var: self._why_not(binding) for var, binding in self._bindings.items()}
        apart = rewriter.ctx.options.fusion == "none"
        self._decodes = Decodes([] if apart else self._bindings.values(), rewriter.uses, self._is_elementwise)
        self._decoded_by: dict[relax.Var, set[relax.Var]] = {}

    def groups(self) -> list[_Group]:
        for binding in self._bindings.values():
            if self.why_not(binding) or self._decodes.copied(binding.var):
                continue
            name = op_name(binding.value)
            if name in self._anchors:
                group = self._open(name, binding)
                self._decode(binding, group)
            else:
                group = self._join(binding)
            if binding.var not in self._branch:
                self._reserve(group)
        self._decode_for_others()
        return self._groups

    def _is_elementwise(self, binding: relax.VarBinding) -> bool:
        return op_name(binding.value) not in self._anchors and not self.why_not(binding)

    def _decode(self, binding: relax.VarBinding, group: _Group) -> None:
        """Put the decodes of an operation's operands into its group, but those of scales along an axis: what a group
        computes is computed at the index of its result."""
        along = of(op_name(binding.value)).per_axis
        args = [a for i, a in enumerate(binding.value.args) if not (along and i and math.prod(shape_of(a) or ()) > 1)]
        for operand in (p for a in args for p in (a.fields[:] if type(a) is relax.Tuple else [a])):
            if self._decodes.copied(operand) or self._withdrawn(operand, binding, group):
                known = {b.var for b in group.members}
                group.members.extend(b for b in self._decodes.chain(operand) if b.var not in known)
                self._decoded_by.setdefault(operand, set()).add(binding.var)
        group.members.sort(key=lambda b: self._position[b.var])

    def _withdrawn(self, operand: Any, reader: relax.VarBinding, group: _Group) -> bool:
        """Whether the decodes that end another group were taken out of it, so that it stores what it stored before."""
        chain, other = self._decodes.chain(operand), self._of.get(operand) if isinstance(operand, relax.Var) else None
        if not chain or other is None or other is group or set(self._rw.uses[operand]) != {reader.var}:
            return False
        if not other.result.same_as(operand) or len(other.members) <= len(chain):
            return False
        del other.members[-len(chain) :]
        for binding in chain:
            del self._of[binding.var]
        return True

    def _decode_for_others(self) -> None:
        """Kernels for what is decoded for readers that are in no group."""
        for var in self._decodes.all_copied:
            readers = set(self._rw.uses.get(var, ()))
            if readers - self._decoded_by.get(var, set()):
                self._groups.append(_Group(ELEMENTWISE, list(self._decodes.chain(var))))

    def why_not(self, binding: relax.VarBinding) -> str:
        """Why an operation is in no group; "" if it is in one."""
        return self._reasons[binding.var]

    def _why_not(self, binding: relax.VarBinding) -> str:
        name = op_name(binding.value)
        if name not in self._anchors and not of(name).is_elementwise:
            return f"{name or 'this expression'} is neither an anchor nor elementwise"
        operands = binding.value.args[:]
        if not static_tensor(binding.var) or not all(map(_operand, operands)):
            return f"{name} has a shape that is only known at run time"
        if any(0 in (shape_of(x) or ()) for x in (binding.var, *operands)):
            return f"{name} over no elements"
        if name not in self._anchors and not _computed(binding):
            return f"{name} of {dtype_of(binding.var)}: no elementwise kernel computes these types"
        return ""

    def _open(self, anchor: str, *members: relax.VarBinding) -> _Group:
        group = _Group(anchor, list(members))
        self._groups.append(group)
        self._of.update({b.var: group for b in members})
        self._size.update({b.var: _Size(1, 1) for b in members})
        return group

    def _join(self, binding: relax.VarBinding) -> _Group:
        """Put an elementwise operation behind the group of one operand, with the elementwise groups of the others."""
        own = self._branch.get(binding.var)
        feeding = [self._of[a] for a in dict.fromkeys(binding.value.args) if self._absorbable(a, binding)]
        operands = (a for a in binding.value.args if isinstance(a, relax.Var) and a in self._of)
        size = _expression(binding, {a: self._size[a] for a in operands if self._of[a] in feeding})
        target = own or self._target(binding, feeding, size)
        if target is None:
            target, feeding, size = self._open(ELEMENTWISE), [], _expression(binding, {})
        self._size[binding.var] = size
        for chain in feeding:
            if chain is not target and chain.anchor == ELEMENTWISE:
                target.members.extend(chain.members)
                self._groups.remove(chain)
                self._branch.update({var: target for var, group in self._branch.items() if group is chain})
        self._of.update({b.var: target for b in target.members if not self._decodes.copied(b.var)})
        self._decode(binding, target)
        target.members.append(binding)
        self._of[binding.var] = target
        return target

    def _target(self, binding: relax.VarBinding, feeding: Sequence[_Group], size: _Size) -> _Group | None:
        """The group that takes an operation: the anchored one with most work, if the fusion model agrees."""
        if not feeding:
            return None
        target = max([g for g in feeding if g.anchor != ELEMENTWISE] or feeding, key=_work)
        if self._fusion(self._candidate(target, [binding], size)):
            return target
        wrong = f"not fused: its expression would have {size.operations} operations, {size.depth} within each other"
        self._rw.skip(wrong, binding.var)
        return None

    def _reserve(self, group: _Group) -> None:
        """Where the group's result branches, keep what is between it and the meeting point for the same group."""
        value = group.result
        if len(set(self._rw.uses.get(value, ()))) < 2:
            return

        def joins(var: relax.Var) -> bool:
            binding = self._bindings[var]
            elementwise = self._is_elementwise(binding) and not self._decodes.copied(var)
            fits = elementwise and (group.anchor == ELEMENTWISE or _fits_anchor(binding, group))
            return fits and var not in self._branch and shape_of(var) == shape_of(value)

        between = [self._bindings[v] for v in meeting(value, self._rw.uses, self._position, joins)]
        sizes = {value: self._size[value]}
        for binding in between:
            sizes[binding.var] = _expression(binding, sizes)
        if between and self._fusion(self._candidate(group, between, sizes[between[-1].var])):
            self._branch.update({b.var: group for b in between})

    @staticmethod
    def _candidate(group: _Group, joining: Sequence[relax.VarBinding], size: _Size) -> FusionCandidate:
        shape, dtype = shape_of(joining[-1].var) or (), dtype_of(joining[-1].var)
        return FusionCandidate(
            group.anchor, tuple(op_name(b.value) for b in group.members), tuple(op_name(b.value) for b in joining),
            shape, dtype, 2 * len(joining) * math.prod(shape) * np.dtype(dtype).itemsize, size.operations, size.depth,
        )  # fmt: skip

    def _absorbable(self, operand: Any, binding: relax.VarBinding) -> bool:
        """Whether an operand's group can compute the operation too, or be computed by the group that does."""
        group = self._of.get(operand) if isinstance(operand, relax.Var) else None
        if group is None or shape_of(operand) != shape_of(binding.var):
            return False
        if group.anchor != ELEMENTWISE and not _fits_anchor(binding, group):
            return False
        own = self._branch.get(binding.var)
        if own is group:
            return True
        alone = group.result.same_as(operand) and len(set(self._rw.uses[operand])) == 1
        return alone and (own is None or group.anchor == ELEMENTWISE)


class _Size(NamedTuple):
    """Of a scalar expression taken as a tree: its operations, and how many stand within each other."""

    operations: int
    depth: int


_LEAF = _Size(1, 0)


def _expression(binding: relax.VarBinding, inside: Mapping[relax.Var, _Size]) -> _Size:
    """The scalar expression of a binding, as LLVM's code generator gets it, given those of the operands that are
    computed in the same kernel."""
    reads = operand_reads(op_name(binding.value), next(iter(_types(binding)), "float32"), dtype_of(binding.var))
    operands = [inside.get(a, _LEAF) if isinstance(a, relax.Var) else _LEAF for a in binding.value.args[: len(reads)]]
    operations = sum(n * operand.operations for n, operand in zip(reads, operands, strict=True))
    return _Size(1 + operations, 1 + max(operand.depth for operand in operands))


def _work(group: _Group) -> int:
    """Multiply-adds of the anchor. The largest takes a shared epilogue: in residual networks the kernels of a stage
    are then the same with and without a projection on the other branch."""
    anchored = group.anchored
    if anchored is None or len(anchored.value.args) < 2:
        return 0
    result, weight = shape_of(anchored.var) or (), shape_of(anchored.value.args[1]) or ()
    depth = math.prod(weight[1:]) if len(weight) > 2 else weight[0] if weight else 1
    return math.prod(result) * depth


def _operand(expr: Any) -> bool:
    if type(expr) is relax.Tuple:
        return all(map(_operand, expr.fields[:]))
    return not isinstance(expr, relax.Var | GenericConst) or static_tensor(expr)


def _types(binding: relax.VarBinding) -> list[str]:
    return [dtype_of(a) for a in binding.value.args[:] if isinstance(a, relax.Var | GenericConst)]


def _computed(binding: relax.VarBinding) -> bool:
    return takes(op_name(binding.value), _types(binding), dtype_of(binding.var))


def _fits_anchor(binding: relax.VarBinding, group: _Group) -> bool:
    """Whether an elementwise operation may follow an anchor, whose recipe computes one type: in float32 or float64,
    or on the way from sums of int32 or to and from a type that tensors are stored in."""
    anchored = group.anchored
    sums = anchored is not None and dtype_of(anchored.var) == "int32" and of(group.anchor).integers
    if anchored is None or not (sums or dtype_of(anchored.var) in FLOATS):
        return False
    types = {dtype_of(binding.var), *_types(binding)}
    if of(op_name(binding.value)).is_conversion:
        return types <= {"float32", "int32", *STORED}
    return len(types) == 1 and (types <= set(FLOATS) or (sums and types == {"int32"}))


def _call(group: _Group, rw: Rewriter) -> Call:
    """Write the group's function into the module and return a call of it."""
    function, args = grouped_function(group.anchor, group.members)
    name = "_".join(["fused", *(_short(op_name(b.value)) for b in group.members)])
    gvar: GlobalVar = rw.add_function(function, name[:80])
    rw.absorb(*(b.var for b in group.members[:-1]))
    rw.fire(f"{gvar.name_hint}: {len(group.members)} operations in one kernel")
    return Call(gvar, args)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def grouped_function(
    anchor: str, members: Sequence[relax.VarBinding], *, constants: bool = True
) -> tuple[relax.Function, list[Any]]:
    """A group as a function of its outside operands, and those operands.

    Args:
        anchor: operator name of its anchor, or "elementwise".
        members: its bindings, in order; the last one is its result.
        constants: whether those with axes are operands too.
    """
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
        if type(expr) is relax.Tuple:
            return relax.Tuple([inner(field) for field in expr.fields[:]])
        if isinstance(expr, relax.Var):
            return inside[expr] if expr in inside else outside(expr)
        return outside(expr) if constants and isinstance(expr, GenericConst) and scalar_of(expr) is None else expr

    bindings = []
    for i, binding in enumerate(members):
        call = binding.value
        value = Call(call.op, [inner(a) for a in call.args[:]], call.attrs, call.ty_args, ret_ty=call.ty)
        kind = relax.Var if i == len(members) - 1 else relax.DataflowVar
        inside[binding.var] = kind(f"v{i}", binding.var.ty)
        bindings.append(relax.VarBinding(inside[binding.var], value))
    constant = [i for i, o in enumerate(operands) if isinstance(o, GenericConst)]
    result = inside[members[-1].var]
    function = relax.Function(params, relax.SeqExpr([relax.DataflowBlock(bindings)], result), result.ty)
    return function.with_attr({GROUP: anchor, CONSTANTS: constant, "Primitive": 1}), operands
