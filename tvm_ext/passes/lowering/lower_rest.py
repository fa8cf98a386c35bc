"""The generic way: what no recipe took is lowered by TVM's own passes and scheduled safely.

LegalizeOps, FuseOps and FuseTIR make the kernels; each is then scheduled by :mod:`tvm_ext.schedules.generic`, which
only runs outer loops on threads. A reshape is no kernel: it is another shape of the same memory.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import Rewriter, bindings_of, main_bindings, op_name
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Kernel
from tvm_ext.ops.scalars.legalize import legalizations
from tvm_ext.schedules import generic

from ..conditions import unique_names
from .kernel_interfaces import check_kept, check_kernels
from .named_fusion import fuse


class LowerRest(Pass):
    """Lower operators and groups without a recipe; name each with the reason."""

    name = "lower-rest"
    needed = "it makes a kernel of whatever has none"
    ensures = (unique_names,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        after = unscheduled(mod, ctx)
        out, fired = IRModule(dict(after.functions_items()), attrs=after.attrs), _views(after, ctx)
        for gvar, function in after.functions_items():
            if not isinstance(function, tirx.PrimFunc) or gvar.name_hint in ctx.kernels:
                continue
            scheduled, how = generic.schedule(function, ctx.machine)
            out.update_func(gvar, scheduled)
            reason = _reason(gvar.name_hint, ctx)
            ctx.kernels[gvar.name_hint] = Kernel(gvar.name_hint, generic.NAME, {"schedule": how}, reason)
            fired.append(Event(gvar.name_hint, f"generic schedule ({how}): {reason}"))
        return PassResult(out, tuple(fired))


def unscheduled(mod: IRModule, ctx: CompileContext) -> IRModule:
    """The module with what no recipe took as kernels that are not scheduled yet; completes the provenance."""
    with ctx.machine.target(), tvm.transform.PassContext(opt_level=3):
        plain = _without_constants_inside(mod, ctx)
        legal = _legalize()(plain)
        check_kept(plain, legal, ctx.provenance)
        check_kernels(legal, ctx.provenance)  # before fusion hides the buffers between operators
        return _to_kernels()(fuse(legal, ctx.provenance))


def _legalize() -> tvm.transform.Pass:
    """Every operator as a kernel of its own; a reshape stays one, so that it stays a view, an output too."""
    return tvm.transform.Sequential(
        [
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            relax.transform.LegalizeOps(legalizations(), skip_ops=["relax.reshape"]),
            relax.transform.AnnotateTIROpPattern(),
        ]
    )


def _to_kernels() -> tvm.transform.Pass:
    """Every fused function as one kernel."""
    return tvm.transform.Sequential(
        [
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
    )


def _views(mod: IRModule, ctx: CompileContext) -> list[Event]:
    """What is said of reshapes: they cost nothing at run time."""
    names = [b.var.name for b in main_bindings(mod) if op_name(b.value) == "relax.reshape"]
    return [Event(", ".join(ctx.provenance.of(name)) or name, "another shape of the same memory") for name in names]


def _without_constants_inside(mod: IRModule, ctx: CompileContext) -> IRModule:
    """Constants in the bodies of the groups that are left become parameters: FuseTIR takes no group with a constant.

    y = f(x), f(p0) = p0 * 0.5   ->   y = f(x, 0.5), f(p0, c0) = p0 * c0
    """
    done: dict[GlobalVar, tuple[GlobalVar, list[GenericConst]]] = {}

    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        call = binding.value
        group = call.op if isinstance(call, Call) and isinstance(call.op, GlobalVar) else None
        if group is None or not isinstance(mod[group], relax.Function):
            return None
        if group not in done:
            function, constants = _lifted(mod[group])
            done[group] = (rw.replace_function(group, function) if constants else group, constants)
        gvar, constants = done[group]
        if not constants:
            return None
        rw.fire(f"{len(constants)} constants of {group.name_hint} are parameters now")
        return Call(gvar, [*call.args, *constants], call.attrs, call.ty_args)

    return Rewriter(mod, ctx).rewrite(visit).mod


def _lifted(function: relax.Function) -> tuple[relax.Function, list[GenericConst]]:
    """The function with a further parameter for each constant operand, and these constants."""
    constants: list[GenericConst] = []
    params: list[relax.Var] = []

    def operand(expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):  # of a concat
            return relax.Tuple([operand(field) for field in expr.fields])
        if not isinstance(expr, GenericConst):
            return expr
        constants.append(expr)
        params.append(relax.Var(f"c{len(params)}", expr.ty))
        return params[-1]

    bindings = []
    for binding in bindings_of(function):
        call = binding.value
        value = Call(call.op, [operand(a) for a in call.args], call.attrs, call.ty_args, ret_ty=call.ty)
        bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    lifted = relax.Function([*function.params, *params], body, function.ret_ty, function.is_pure, function.attrs)
    return lifted, constants


def _reason(kernel: str, ctx: CompileContext) -> str:
    """Why the recipes refused it, as choose-recipes said, or that none is for it."""
    for report in ctx.reports:
        for event in report.skipped if report.name == "choose-recipes" else ():
            if event.value == kernel:
                return event.detail
    return "no recipe for this operation"
