"""The begin of the generic way: operators and groups that no recipe took become kernels by TVM's own passes.

LegalizeOps makes a kernel of each operator, FuseOps groups them, and FuseTIR makes one kernel of each group.
"""

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import Rewriter, bindings_of, with_body
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.ops.scalars.legalize import legalizations

from .kernel_interfaces import check_kept, check_kernels
from .named_fusion import fuse


class LiftGroupConstants(Pass):
    """Constants in the bodies of the groups that are left become parameters.

    y = f(x), f(p0) = p0 * 0.5   ->   y = f(x, 0.5), f(p0, c0) = p0 * c0
    """

    name = "lift-group-constants"
    needed = "FuseTIR takes no group with a constant"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return _without_constants_inside(mod, ctx)


class LegalizeRest(Pass):
    """Every operator is a kernel of its own; a reshape stays one, so that it stays a view, an output too."""

    name = "legalize-rest"
    needed = "an operator without a kernel cannot run"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        with ctx.machine.target(), tvm.transform.PassContext(opt_level=3):
            legal = relax.transform.LegalizeOps(legalizations(), skip_ops=["relax.reshape"])(mod)
        check_kept(mod, legal, ctx.provenance)
        check_kernels(legal, ctx.provenance)  # before fusion hides the buffers between operators
        before = {gvar.name_hint for gvar in mod.get_global_vars()}
        kernels = (gvar.name_hint for gvar in legal.get_global_vars() if gvar.name_hint not in before)
        return PassResult(legal, tuple(Event(name, "a kernel of its own") for name in sorted(kernels)))


class FuseRest(Pass):
    """Kernels that TVM's FuseOps groups are a function of their own; names and provenance are kept."""

    name = "fuse-rest"
    needed = "it completes the provenance of what no recipe took"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        with ctx.machine.target(), tvm.transform.PassContext(opt_level=3):
            return PassResult(fuse(mod, ctx.provenance))


def _without_constants_inside(mod: IRModule, ctx: CompileContext) -> PassResult:
    """The module whose groups have no constants inside."""
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

    return Rewriter(mod, ctx).rewrite(visit)


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
    return with_body(function, body, [*function.params, *params]), constants
