"""Fusion of a pointwise convolution with the depthwise convolution behind it, where it is estimated to pay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GlobalVar, IRModule

from tvm_ext.core.cost.estimate import seconds
from tvm_ext.core.fusion import FUSION_MODELS, FusionCandidate
from tvm_ext.core.graph.relax_graph import Rewriter, op_name
from tvm_ext.core.group import CONSTANTS, GROUP, Group
from tvm_ext.core.mixing import mixes_symbolic
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.core.sizes import EXTENTS
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import beyond_l2

from .choose_recipes import allowed_matches, least_cost

ANCHOR, _CONV = "expand_depthwise", "relax.nn.conv2d"
#: Share of the estimated time of two kernels below which one is made. Equal estimates favour one: what lies between
#: two kernels goes through caches that other programs use too, which no estimate knows.
WORTH = 1.03


class FuseExpansions(Pass):
    """The first two layers of an inverted residual become one group.

    Before -> after::

        m = conv2d_clip(x, w1); y = conv2d_clip1(m, w2)   ->   y = expand_depthwise(x, w1, w2)

    `m` is read by nothing else, and sizes of images are known. The group is made if a recipe takes it at no more
    estimated time than the two kernels: where the rows that two strips both need are few, so that `m` costs little more
    and never leaves L2.
    """

    name = "fuse-expansions"
    stage = "grouped"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        fusion = ctx.options.fusion
        fuses = FUSION_MODELS[fusion] if isinstance(fusion, str) else fusion

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            pair = _pair(binding.value, rw)
            if pair is None or not fuses(_candidate(*pair, mod)):
                return None
            return _fused(pair[0], pair[1], rw, ctx)

        result = Rewriter(mod, ctx).rewrite(visit)
        return PassResult(relax.transform.DeadCodeElimination()(result.mod), result.fired, result.skipped)


def _pair(call: Any, rw: Rewriter) -> tuple[Call, Call] | None:
    """(call of the first group, call of the depthwise group) if the second alone reads the first; else None."""
    depthwise = _conv_group(call, rw.mod)
    if depthwise is None or depthwise.call is None or int(depthwise.call.attrs.groups) == 1:
        return None
    if {depthwise.dtype, *(p.dtype for p in depthwise.params)} != {"float32"}:
        return None  # tensors that are stored in fewer bits need no kernel that saves their traffic
    data = depthwise.operand(0)
    value = call.args[depthwise.params.index(data)] if data is not None else None
    first = rw.definition(value) if isinstance(value, relax.Var) and rw.single_use(value) else None
    expand = _conv_group(first, rw.mod)
    if expand is None or any(not p.constant for p in expand.params if p != expand.operand(0)):
        return None
    if {expand.dtype, *(p.dtype for p in expand.params)} != {"float32"}:
        return None
    return first, call


def _conv_group(call: Any, mod: IRModule) -> Group | None:
    if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
        return None
    function = mod[call.op]
    if not isinstance(function, relax.Function) or str(function.attrs.get(GROUP, "")) != _CONV:
        return None
    group = Group(call.op.name_hint, function)
    return None if mixes_symbolic(group) else group


def _candidate(first: Call, second: Call, mod: IRModule) -> FusionCandidate:
    """What a fusion model is asked. Each convolution keeps an expression of its own."""
    expand, depthwise = (Group(c.op.name_hint, mod[c.op]) for c in (first, second))
    names = [tuple(op_name(b.value) for b in g.bindings) for g in (expand, depthwise)]
    saved = 2 * math.prod(expand.shape) * np.dtype(expand.dtype).itemsize
    return FusionCandidate(_CONV, names[0], names[1], depthwise.shape, depthwise.dtype, saved, len(names[1]))


def _fused(first: Call, second: Call, rw: Rewriter, ctx: CompileContext) -> Call | None:
    """A call of the merged group, or None if two kernels are estimated to be faster."""
    groups = [Group(c.op.name_hint, rw.mod[c.op]) for c in (first, second)]
    apart = [least_cost(allowed_matches(g, ctx), ctx.machine) for g in groups]
    function, args = _merged(groups[0], groups[1], first, second)
    options = allowed_matches(Group(ANCHOR, function), ctx)
    together = least_cost(options, ctx.machine)
    if together is None or any(p is None for p in apart):
        rw.skip("; ".join(options.reasons) or "a part has no recipe")
        return None
    # The cost of a kernel is that of its reads; what the first one writes is brought into cache and written back.
    written = 2 * math.prod(groups[0].shape) * np.dtype(groups[0].dtype).itemsize
    moved = beyond_l2(written, ctx.machine, ctx.machine.threads)
    two = sum(p.cost for p in apart if p is not None) + seconds(0, moved, ctx.machine, 1)
    if together.cost >= WORTH * two:
        rw.skip(f"as one kernel {together.cost * 1e6:.0f} us are expected, as two {two * 1e6:.0f} us")
        return None
    gvar = rw.add_function(function, f"fused_{ANCHOR}")
    rw.fire(f"{gvar.name_hint}: {together.cost * 1e6:.0f} us are expected, as two kernels {two * 1e6:.0f} us")
    rw.absorb(*(a for a in second.args if isinstance(a, relax.Var) and rw.definition(a) is first))
    return Call(gvar, args)


def _merged(expand: Group, depthwise: Group, first: Call, second: Call) -> tuple[relax.Function, list[Any]]:
    """Both groups as one function, and the operands of its call."""
    args: list[Any] = []
    params: list[relax.Var] = []
    constants: list[int] = []
    now: dict[relax.Var, relax.Var] = {}
    bindings: list[relax.VarBinding] = []
    extents: list[Any] = []
    for group, call in ((expand, first), (depthwise, second)):
        used = group.extents or [p.shape for p in group.params]
        for i, (param, arg) in enumerate(zip(group.params, call.args, strict=True)):
            if group is depthwise and param == group.operand(0):
                now[param.var] = now[expand.result]
                continue
            now[param.var] = relax.Var(f"p{len(params)}", param.var.ty)
            constants += [len(params)] if param.constant else []
            params.append(now[param.var])
            args.append(arg)
            extents.append(used[i])
        for binding in group.bindings:
            old, last = binding.value, binding.var.same_as(depthwise.result)
            operands = [now.get(a, a) if isinstance(a, relax.Var) else a for a in old.args]
            value = Call(old.op, operands, old.attrs, old.ty_args, ret_ty=old.ty)
            now[binding.var] = (relax.Var if last else relax.DataflowVar)(f"v{len(bindings)}", binding.var.ty)
            bindings.append(relax.VarBinding(now[binding.var], value))
    result = now[depthwise.result]
    function = relax.Function(params, relax.SeqExpr([relax.DataflowBlock(bindings)], result), result.ty)
    attrs = {GROUP: ANCHOR, CONSTANTS: constants, "Primitive": 1}
    if depthwise.extents is not None:
        attrs[EXTENTS] = [*extents, depthwise.extents[-1]]
    return function.with_attr(attrs), args
