"""Recipes and configurations for the sizes that a program runs at: those of least time over the bounds and others.

conv2d 512 -> 512, 4 x 12 x 12 at the bounds: Winograd 1.0 ms, direct 4.8 ms; 1 x 7 x 7: 1.0 and 0.5 ms;
1 x 4 x 4: 1.0 and 0.3 ms   ->   direct
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax
from tvm.ir import Call, IRModule

from tvm_ext.core.graph.relax_graph import iter_groups, shape_of, with_functions
from tvm_ext.core.group import CONFIG, RECIPE, Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Plan
from tvm_ext.core.recipe import Config, Match, Miss, Recipe, config_text
from tvm_ext.core.sizes import EXTENTS, evaluate

from ..lowering.choose_recipes import Matches, allowed_matches, least_cost

#: Configurations of a recipe that are compared: those of least time at the bounds.
_POINTS = 128


class ChooseForSizes(Pass):
    """Other plans for groups of run-time extents that were planned by estimate at the bounds.

    Args:
        sizes: of the symbols, by name: those beside the bounds that plans are compared at.
    """

    name = "choose-for-sizes"

    def __init__(self, sizes: Sequence[Mapping[str, int]]) -> None:
        self._sizes = sizes

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        fired, chosen = [], {}
        for gvar, function in iter_groups(mod):
            name = gvar.name_hint
            plan = ctx.plans.get(name)
            if plan is None or plan.choice.get("by") != "estimate" or plan.match.group.extents is None:
                continue
            better = best_over(plan, allowed_matches(plan.match.group, ctx), self._sizes, ctx.machine)
            if better is plan:
                continue
            ctx.plans[name] = better
            text = config_text(better.config)
            chosen[name] = function.with_attr({RECIPE: better.recipe.name, CONFIG: text})
            before = f"{plan.recipe.name} {config_text(plan.config)}"
            fired.append(Event(name, f"{better.recipe.name} {text} where {before} is best at the bounds"))
        return PassResult(with_functions(mod, chosen), tuple(fired))


def best_over(plan: Plan, options: Matches, sizes: Sequence[Mapping[str, int]], machine: Machine) -> Plan:
    """The plan of least time over the bounds and all sizes, each as a multiple of the least time there; the same object
    if that is this one, or if nothing is known of other sizes."""
    return _compared(plan, options, sizes, machine)[0]


def times_over(
    group: Group, options: Matches, sizes: Sequence[Mapping[str, int]], machine: Machine
) -> list[float]:  # fmt: skip
    """Seconds at the bounds and at all sizes of the plan of :func:`best_over`, infinite where they are not known; none
    if no recipe takes the group."""
    plan = least_cost(options, machine)
    if plan is None:
        return []
    if group.extents is None:
        return [plan.cost] * (1 + len(sizes))
    return _compared(plan, options, sizes, machine)[1]


def _compared(
    plan: Plan, options: Matches, sizes: Sequence[Mapping[str, int]], machine: Machine
) -> tuple[Plan, list[float]]:
    plans = [plan]
    for recipe, match in options:
        points = heapq.nsmallest(_POINTS, recipe.costs_of_any_size(match, machine), key=lambda point: point[1])
        plans += [replace(plan, recipe=recipe, match=match, config=dict(c), cost=cost) for c, cost in points]
    times = [[p.cost for p in plans]]
    for size in sizes:
        group = group_at(plan.match.group, size)
        matches = {} if group is None else {r.name: r.match(group, machine) for r in {p.recipe for p in plans}}
        times.append([_seconds(p.recipe, matches.get(p.recipe.name), p.config, machine) for p in plans])
    known = [row for row in times if 0 < min(row) < math.inf]
    best = 0
    if len(known) > 1 and known[0] is times[0]:
        least = [min(row) for row in known]
        relative = [sum(t / b for t, b in zip(column, least, strict=True)) for column in zip(*known, strict=True)]
        best = min(range(len(relative)), key=relative.__getitem__)
    return plans[best], [row[best] for row in times]


def _seconds(recipe: Recipe[Any], match: Match | Miss | None, config: Config, machine: Machine) -> float:
    return recipe.cost_cut(match, config, machine) if isinstance(match, Match) else math.inf


def group_at(group: Group, sizes: Mapping[str, int]) -> Group | None:
    """A group of run-time extents as a static one of given sizes; None if its operations state shapes of the bounds."""
    assert group.extents is not None
    shapes = [[evaluate(dim, sizes) for dim in extents] for extents in group.extents]
    params = [
        relax.Var(param.var.name, relax.TensorType(shape, param.dtype))
        for shape, param in zip(shapes, group.params, strict=False)
    ]
    builder = relax.BlockBuilder()
    now: dict[Any, Any] = {param.var: var for param, var in zip(group.params, params, strict=True)}
    bindings = []
    for binding in group.bindings:
        try:
            value = builder.normalize(_with_operands(binding.value, now))
        except Exception:  # TVM's inference of types raises what it likes
            return None
        now[binding.var] = relax.Var(binding.var.name, value.ty)
        bindings.append(relax.VarBinding(now[binding.var], value))
    result = now[group.result]
    if shape_of(result) != tuple(shapes[-1]):
        return None
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    attrs = {key: value for key, value in group.function.attrs.items() if key != EXTENTS}
    return Group(group.name, relax.Function(params, body, result.ty).with_attr(attrs))


def _with_operands(value: Any, now: Mapping[Any, Any]) -> Any:
    """An expression that reads other variables."""
    if isinstance(value, Call):
        return Call(value.op, [_with_operands(a, now) for a in value.args], value.attrs, value.ty_args)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_with_operands(field, now) for field in value.fields])
    return now.get(value, value) if isinstance(value, relax.Var) else value
