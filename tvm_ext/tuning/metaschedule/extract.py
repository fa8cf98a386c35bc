"""Kernels of a model that have designs, as `schedule-kernels` finds them: packed, with epilogues, equal ones once."""

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm.ir import IRModule

from ...core.graph.relax_graph import main_bindings, op_name
from ...core.machine import Machine
from ...core.options import CompileOptions
from ...core.passes import CompileContext
from ...core.records.schedule_database import normalized
from ...driver.programs import lower
from ...passes.lowering.schedule_kernels import ScheduleKernels
from .designs import Workload, default_of, designs_of


def kernels_of(model: Any, options: CompileOptions, machine: Machine) -> dict[str, Workload]:
    """Name -> kernel, of the blocked recipes; its weight is the number of its calls.

    Args:
        model: path, bytes or ModelProto, of static shapes.
        options: of the compile that will use the schedules.

    Raises:
        ModelError, UnsupportedError: as in a compile.
    """
    lowered = lower(model, options, machine, until=ScheduleKernels)
    return _workloads(lowered.mod, lowered.ctx)


def _workloads(mod: IRModule, ctx: CompileContext) -> dict[str, Workload]:
    workloads: dict[str, tuple[IRModule, Workload]] = {}
    for name in _called(mod):
        kernel = ctx.kernels.get(name)
        plan = kernel.plan if kernel else None
        if plan is None or not (designs := designs_of(plan.recipe, plan.match, plan.config, ctx.machine)):
            continue
        unscheduled = normalized(mod[name])
        known = next((n for n, (other, _) in workloads.items() if tvm_ffi.structural_equal(other, unscheduled)), None)
        if known is not None:
            workloads[known] = unscheduled, replace(workloads[known][1], weight=workloads[known][1].weight + 1)
            continue
        default = default_of(plan.recipe, plan.match, plan.config, ctx.machine)
        workloads[name] = unscheduled, Workload(mod[name], tuple(designs), default=default)
    return {name: workload for name, (_, workload) in workloads.items()}


def _called(mod: IRModule) -> list[str]:
    """Kernels in the order of their calls, once a call."""
    calls = [b.value for b in main_bindings(mod) if op_name(b.value) == "relax.call_tir"]
    return [call.args[0].name_hint for call in calls]
