"""The tasks of a model: its groups, equal ones once, each with the recipes that may be worth it, and where they stand.

resnet18.onnx  ->  18 groups: conv2d 1x64x56x56 64x64x3x3 + add + relu (2 calls): conv2d_winograd, conv2d_nchwc; ...
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.ir import Call, GlobalVar

from ..core.graph.relax_graph import iter_groups, main_bindings
from ..core.group import Group
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.passes import CompileContext
from ..core.plan import Plan
from ..core.records.task_key import TaskKey
from ..driver.programs import lower_sizes
from ..frontend.reading.signature import read_with
from ..passes.lowering.choose_recipes import ChooseRecipes, least_cost, matches
from .task import RecipeTask

#: A recipe whose default is estimated to take this many times as long as the best one's is not tuned.
_WORTH = 1.6


@dataclass(frozen=True)
class Workload:
    """One kind of group in a model.

    Attributes:
        key: of the group.
        calls: ONNX nodes of each call site.
        tasks: one a recipe, that of the least estimated cost first.
        plan: what a compile without records chooses.
    """

    key: TaskKey
    calls: tuple[tuple[str, ...], ...]
    tasks: tuple[RecipeTask, ...]
    plan: Plan


def workloads_of(model: Any, options: CompileOptions, machine: Machine) -> list[Workload]:
    """What can be tuned in a model: groups that a recipe takes in more than one configuration.

    Args:
        model: path, bytes or ModelProto.
        options: of the compile that will use the records. A symbolic batch gives the groups of each of its sizes.

    Raises:
        ModelError, UnsupportedError: as in a compile.
    """
    workloads: dict[TaskKey, Workload] = {}
    for lowered in lower_sizes(*read_with(model, options), machine, until=ChooseRecipes):
        calls = _call_sites(lowered.mod, lowered.ctx)
        for gvar, function in iter_groups(lowered.mod):
            work = _workload(Group(gvar.name_hint, function), calls.get(gvar.name_hint, []), lowered.ctx)
            if work is not None:
                known = workloads.get(work.key)
                workloads[work.key] = replace(known, calls=known.calls + work.calls) if known else work
    return list(workloads.values())


def _call_sites(mod: Any, ctx: CompileContext) -> dict[str, list[tuple[str, ...]]]:
    """Group -> the ONNX nodes of each of its calls."""
    sites: dict[str, list[tuple[str, ...]]] = {}
    for binding in main_bindings(mod):
        if isinstance(binding.value, Call) and isinstance(binding.value.op, GlobalVar):
            sites.setdefault(binding.value.op.name_hint, []).append(tuple(ctx.provenance.of(binding.var.name)))
    return sites


def _workload(group: Group, calls: Sequence[tuple[str, ...]], ctx: CompileContext) -> Workload | None:
    options = matches(group, ctx.machine, exact=ctx.options.accuracy == "exact")
    plan = least_cost(options, ctx.machine)
    if plan is None:
        return None
    costs = {r.name: r.cost(m, r.default(m, ctx.machine), ctx.machine) for r, m in options}
    tasks = [
        RecipeTask(group, recipe, match, ctx.machine)
        for recipe, match in sorted(options, key=lambda pair: costs[pair[0].name])
        if costs[recipe.name] <= _WORTH * plan.cost
    ]
    tasks = [task for task in tasks if len(task.space) > 1] if len(tasks) == 1 else tasks
    return Workload(TaskKey.of_group(group), tuple(calls), tuple(tasks), plan) if tasks else None
