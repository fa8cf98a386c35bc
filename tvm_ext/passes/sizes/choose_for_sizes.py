"""Configurations for sizes that a program runs at: of those nearly the best at the bounds, the best at a small one.

dense, 4096 rows: 9.0 ms with rows shared among threads, 9.1 ms with columns;  105 rows: 0.31 and 0.24 ms   ->   columns
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from tvm.ir import IRModule

from tvm_ext.core.group import CONFIG, Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Plan
from tvm_ext.core.recipe import Config, Miss, config_text

#: What a configuration may take at the bounds, of the best one's time there.
_NEARLY = 1.1


class ChooseForSizes(Pass):
    """Other configurations for plans that were chosen by estimate at the bounds.

    Args:
        small: group -> the same group at a small size.
    """

    name = "choose-for-sizes"

    def __init__(self, small: Mapping[str, Group]) -> None:
        self._small = small

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        fired, out = [], IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for name, plan in ctx.plans.items():
            if plan.choice.get("by") != "estimate" or name not in self._small:
                continue
            better = _for_both(plan, self._small[name], ctx.machine)
            if better is None:
                continue
            ctx.plans[name] = better
            gvar = mod.get_global_var(name)
            out.update_func(gvar, mod[gvar].with_attr(CONFIG, config_text(better.config)))
            fired.append(Event(name, f"{config_text(better.config)} where {config_text(plan.config)} is best"))
        return PassResult(out, tuple(fired))


def _for_both(plan: Plan, group: Group, machine: Machine) -> Plan | None:
    """The plan with the configuration of least cost at both sizes; None if it has it, or has no match at the other."""
    recipe, match = plan.recipe, plan.recipe.match(group, machine)
    if isinstance(match, Miss):
        return None

    def small(config: Config) -> float:
        return recipe.cost(match, config, machine)

    points = recipe.points_of_any_size(plan.match, machine)
    near = [(c, cost) for c in points
            if (cost := recipe.cost(plan.match, c, machine)) <= _NEARLY * plan.cost]  # fmt: skip
    least = min((small(config) for config, _ in near), default=math.inf)
    if not 0 < least < math.inf:
        return None
    config, cost = min(near, key=lambda one: one[1] / plan.cost + small(one[0]) / least)
    return None if config == plan.config else replace(plan, config=config, cost=cost)
