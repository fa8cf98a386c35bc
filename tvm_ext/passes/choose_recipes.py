"""Choice: for each group the recipe and configuration of least estimated cost.

    conv2d_add_relu(...)   ->   the same, with attributes tvm_ext.recipe = "conv2d_nchwc", tvm_ext.config = {...}

The choice fixes layouts and weight packing, so it comes before layout and lowering. A group no recipe takes keeps no
attribute: the generic way lowers it, and the report says which recipe refused it and why.
"""

from __future__ import annotations

import math

from tvm.ir import IRModule

from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Plan
from tvm_ext.core.recipe import Match, config_text
from tvm_ext.core.relax_graph import iter_groups
from tvm_ext.schedules import recipes

RECIPE, CONFIG = "tvm_ext.recipe", "tvm_ext.config"


class ChooseRecipes(Pass):
    """Analytic: no candidate is run."""

    name = "choose-recipes"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        fired, skipped = [], []
        out = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for gvar, function in iter_groups(mod):
            group = Group(gvar.name_hint, function)
            plan, reasons = choose(group, ctx.machine, exact=ctx.options.accuracy == "exact")
            if plan is None:
                skipped.append(Event(group.name, "; ".join(reasons) or f"no recipe for {group.anchor}"))
                continue
            ctx.plans[group.name] = plan
            text = config_text(plan.config)
            out.update_func(gvar, function.with_attr({RECIPE: plan.recipe.name, CONFIG: text}))
            fired.append(Event(group.name, f"{plan.recipe.name} {text}"))
        return PassResult(out, tuple(fired), tuple(skipped))


def choose(group: Group, machine: Machine, *, exact: bool = False) -> tuple[Plan | None, list[str]]:
    """The plan of least cost, or None; and why each recipe for this anchor refused.

    Args:
        exact: leave out recipes that transform the sums they compute.
    """
    plans, reasons = [], []
    for recipe in recipes():
        if group.anchor not in recipe.anchors:
            continue
        if exact and not recipe.exact:
            reasons.append(f'{recipe.name}: accuracy="exact"')
            continue
        match = recipe.match(group, machine)
        if not isinstance(match, Match):
            reasons.append(f"{recipe.name}: {match.reason}")
            continue
        config = recipe.default(match, machine)
        if math.isinf(cost := recipe.cost(match, config, machine)):
            reasons.append(f"{recipe.name}: no configuration is legal on {machine.isa}")
            continue
        plans.append(Plan(recipe, match, config, cost))
    return (min(plans, key=lambda p: p.cost) if plans else None), reasons
