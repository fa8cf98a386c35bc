"""Scheduling: each kernel's recipe schedules its TIR function, or a MetaSchedule database that was given does."""

from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule

from tvm_ext.core.errors import PassError, at_nodes, naming
from tvm_ext.core.graph.relax_graph import Rewriter, op_name, shape_of
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.core.plan import Kernel
from tvm_ext.core.recipe import config_text
from tvm_ext.schedules.steps.sizes import apply_schedule


class ScheduleKernels(Pass):
    """Every kernel that assign-layouts made, by its recipe and configuration.

    A schedule may give the result its physical shape only now (`transform_layout`), so the function gets a new
    global variable of the new type, and its calls are changed to it.
    """

    name = "schedule-kernels"
    needed = "a kernel has its final layout only when it is scheduled: switch recipes off instead"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        done: dict[GlobalVar, GlobalVar] = {}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            call = binding.value
            kernel = ctx.kernels.get(call.args[0].name_hint) if op_name(call) == "relax.call_tir" else None
            if kernel is None or kernel.schedule is None:
                return None
            old = call.args[0]
            if old not in done:
                function = _found(mod[old], kernel, shape_of(call), rw)
                if function is None:
                    function = _scheduled(mod[old], kernel, rw)
                    rw.fire(f"scheduled by {kernel.recipe}", kernel.name)
                done[old] = rw.replace_function(old, function)
            return Call(call.op, [done[old], *call.args[1:]], call.attrs, call.ty_args)

        return Rewriter(mod, ctx).rewrite(visit)


def metaschedule_record(kernel: Kernel) -> str:
    """What a schedule of a MetaSchedule database goes by, among the records that can be switched off."""
    return f"MetaSchedule: {kernel.name}"


def _found(function: tirx.PrimFunc, kernel: Kernel, result: Any, rw: Rewriter) -> tirx.PrimFunc | None:
    """The kernel, scheduled by the MetaSchedule database; None if there is none, or none for this kernel."""
    if rw.ctx.schedules is None:
        return None
    if metaschedule_record(kernel) in rw.ctx.switches.records:
        rw.skip(f"{kernel.name}: the schedule found by MetaSchedule is switched off")
        return None
    stored = rw.ctx.schedules.find(function, rw.ctx.machine, result)
    if stored.schedule is None:
        rw.skip(f"{kernel.name}: {stored.reason}")
        return None
    kernel.record = "MetaSchedule"
    rw.fire(f"scheduled by MetaSchedule, which measured {stored.seconds * 1e6:.1f} us", kernel.name)
    scheduled = stored.schedule.mod["main"]
    kernel_ = tirx.PrimFunc(scheduled.params, scheduled.body, scheduled.ret_type, function.attrs)
    return kernel_.without_attr("global_symbol")


def _scheduled(function: tirx.PrimFunc, kernel: Kernel, rw: Rewriter) -> tirx.PrimFunc:
    """The function after its recipe's schedule.

    Raises:
        PassError: the recipe failed; names it, the kernel with its nodes, and the configuration.
    """
    assert kernel.schedule is not None
    what = f"recipe {kernel.recipe!r} cannot schedule kernel {kernel.name!r} with {config_text(kernel.config)}"
    nodes, types = rw.ctx.provenance.of(rw.current), rw.ctx.ownership.types
    with naming(PassError, lambda: what + at_nodes(nodes, types)):
        return apply_schedule(function, kernel.plan.match.group if kernel.plan else None, kernel.schedule)
