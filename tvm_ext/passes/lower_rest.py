"""The generic way: what no recipe took is lowered by TVM's own passes and scheduled safely.

LegalizeOps, FuseOps and FuseTIR make the kernels; each is then scheduled by :mod:`tvm_ext.schedules.generic`, which
only fuses outer loops, runs them on threads and vectorizes where that is always legal.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.ir import IRModule

from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Kernel
from tvm_ext.schedules import generic


class LowerRest(Pass):
    """Lower operators and groups without a recipe; name each with the reason."""

    name = "lower-rest"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        lowered = tvm.transform.Sequential(
            [
                relax.backend.DispatchSampling(),
                relax.backend.DispatchSortScan(),
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.RewriteDataflowReshape(),
                relax.transform.DeadCodeElimination(),
            ]
        )
        with ctx.machine.target(), tvm.transform.PassContext(opt_level=3):
            after = lowered(mod)
        out, fired = IRModule(dict(after.functions_items()), attrs=after.attrs), []
        for gvar, function in after.functions_items():
            if not isinstance(function, tirx.PrimFunc) or gvar.name_hint in ctx.kernels:
                continue
            scheduled, how = generic.schedule(function, ctx.machine)
            out.update_func(gvar, scheduled)
            reason = _reason(gvar.name_hint, ctx)
            ctx.kernels[gvar.name_hint] = Kernel(gvar.name_hint, generic.NAME, {"schedule": how}, reason)
            fired.append(Event(gvar.name_hint, f"generic schedule ({how}): {reason}"))
        return PassResult(out, tuple(fired))


def _reason(kernel: str, ctx: CompileContext) -> str:
    """Why the recipes refused it, as choose-recipes said, or that none is for it."""
    for report in ctx.reports:
        for event in report.skipped if report.name == "choose-recipes" else ():
            if event.value == kernel:
                return event.detail
    return "no recipe for this operation"
