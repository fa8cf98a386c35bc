"""Choice: for each group the recipe and configuration measured to be best, of a record, or of least estimated cost.

    conv2d_add_relu(...)   ->   the same, with attributes tvm_ext.recipe = "conv2d_nchwc", tvm_ext.config = {...}

The choice fixes layouts and weight packing, so it comes before layout and lowering. A group no recipe takes keeps no
attribute: the generic way lowers it, and the report says which recipe refused it and why. It also says why a record
was refused (another machine, number of threads or version of its recipe): then the default is taken.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm.ir import IRModule

from tvm_ext.core.graph.relax_graph import iter_groups, with_functions
from tvm_ext.core.group import CONFIG, RECIPE, Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.mixing import mixes_symbolic
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Plan
from tvm_ext.core.recipe import Config, Match, Recipe, config_text
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import RecordBook
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.schedules import recipes

from ..sizes.alignment import VARYING


class ChooseRecipes(Pass):
    """By verdicts of the timing cache, records and estimates: no candidate is run."""

    name = "choose-recipes"
    needed = "without it no recipe is used: switch recipes off instead"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        fired, skipped, chosen = [], [], {}
        for gvar, function in iter_groups(mod):
            group = Group(gvar.name_hint, function)
            options = allowed_matches(group, ctx)
            plan, refused = choose(group, options, ctx.machine, ctx.records, ctx.switches.records, ctx.timings)
            skipped += [Event(group.name, why) for why in refused]
            if plan is None:
                skipped.append(Event(group.name, "; ".join(options.reasons) or f"no recipe for {group.anchor}"))
                continue
            ctx.plans[group.name] = plan
            text = config_text(plan.config)
            chosen[group.name] = function.with_attr({RECIPE: plan.recipe.name, CONFIG: text})
            source = f" from a record of {plan.record.cost * 1e6:.1f} us" if plan.record else ""
            fired.append(Event(group.name, f"{plan.recipe.name} {text}{source}"))
        return PassResult(with_functions(mod, chosen), tuple(fired), tuple(skipped))


@dataclass(frozen=True)
class Matches:
    """Recipes that take a group, with what they read of it; and why each other one refused, which others add to."""

    taken: tuple[tuple[Recipe, Match], ...]
    reasons: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Recipe, Match]]:
        return iter(self.taken)


def allowed_matches(group: Group, ctx: CompileContext) -> Matches:
    """All recipes that may take a group in a compile: options and switches leave some out."""
    if group.name in ctx.switches.groups:
        return Matches((), ["switched off"])
    if why := group.function.attrs.get(VARYING):
        return Matches((), [str(why)])
    return matches(group, ctx.machine, exact=ctx.options.accuracy == "exact", off=ctx.switches.recipes)


def matches(group: Group, machine: Machine, *, exact: bool = False, off: Collection[str] = frozenset()) -> Matches:
    """All recipes that take a group.

    Args:
        exact: leave out recipes that transform the sums they compute, or add products with zeros.
        off: names of recipes that are switched off.
    """
    taking: list[tuple[Recipe, Match]] = []
    reasons: list[str] = []
    mixed = mixes_symbolic(group)
    for recipe in recipes():
        if group.anchor not in recipe.anchors:
            continue
        if recipe.name in off:
            reasons.append(f"{recipe.name}: switched off")
            continue
        if exact and not recipe.exact:
            reasons.append(f'{recipe.name}: accuracy="exact"')
            continue
        if mixed and not recipe.any_size:
            reasons.append(f"{recipe.name}: {mixed}")
            continue
        match = recipe.match(group, machine)
        if not isinstance(match, Match):
            reasons.append(f"{recipe.name}: {match.reason}")
        elif exact and not recipe.is_exact(match):
            reasons.append(f'{recipe.name}: accuracy="exact": here it would add products with zeros')
        else:
            taking.append((recipe, match))
    return Matches(tuple(taking), reasons)


def choose(
    group: Group, options: Matches, machine: Machine, records: RecordBook | None = None,
    off: Collection[str] = frozenset(), timings: RecordBook | None = None,
) -> tuple[Plan | None, tuple[str, ...]]:  # fmt: skip
    """The plan that was measured to be best, else of a record that fits, else of least estimated cost; and why records
    were refused.

    Args:
        off: rows of records that are switched off: a group whose record is among them gets its default.
        timings: the timing cache; only what its verdicts name is followed.
    """
    key = TaskKey.of_group(group)
    plan: Plan | None = None
    refused: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}
    if timings is not None and (verdict := timings.verdict(key, machine)) is not None:
        facts = {"reason": verdict.reason, **verdict.facts}
        plan, refused = _recorded(timings, key, options, machine, off)
        if plan is not None:
            return replace(plan, choice={"by": "measure", **facts}), refused
    if records is not None and (records.records or records.verdicts):
        plan, more = _recorded(records, key, options, machine, off)
        refused += more
    chosen = plan or least_cost(options, machine)
    return chosen and replace(chosen, choice={"by": "record" if plan else "estimate", **facts}), refused


def _recorded(
    book: RecordBook, key: TaskKey, options: Matches, machine: Machine, off: Collection[str]
) -> tuple[Plan | None, tuple[str, ...]]:
    """The plan of the record that a book has for a task; and why it, or others, were refused."""
    choice = book.best(key, machine, {r.name: r.version for r, _ in options})
    if choice.record is None:
        return None, choice.reasons
    if off and choice.record.to_row() in off:
        return None, (*choice.reasons, f"record of {choice.record.recipe}: switched off")
    plan = plan_of(choice.record, options, machine)
    if isinstance(plan, Plan) and plan.match.group.extents and not plan.recipe.cuts(plan.match, plan.config):
        plan = f"record of {plan.recipe.name}: its loops would not end at sizes that are known at run time"
    return (plan, choice.reasons) if isinstance(plan, Plan) else (None, (*choice.reasons, plan))


def least_cost(options: Matches, machine: Machine) -> Plan | None:
    """Each recipe's default, and of these the one of least estimated cost; None if no configuration is legal."""
    plans = []
    for recipe, match in options:
        default = recipe.default if match.group.extents is None else recipe.default_of_any_size
        config = default(match, machine)
        if math.isinf(cost := recipe.cost(match, config, machine)):
            options.reasons.append(f"{recipe.name}: no configuration is legal on {machine.isa}")
        else:
            plans.append(Plan(recipe, match, config, cost))
    return min(plans, key=lambda p: p.cost, default=None)


def plan_of(record: Record, options: Matches, machine: Machine) -> Plan | str:
    """The plan that a record asks for; or why it cannot be followed."""
    recipe, match = next((r, m) for r, m in options if r.name == record.recipe)
    text = config_text(record.config)
    space = recipe.space(match, machine)
    if set(space) != set(record.config):
        return f"record of {recipe.name}: its knobs {sorted(record.config)} are not {sorted(space)}"
    config = _of_space(record.config, space) or _of_space(record.config, space, recipe.default(match, machine))
    if config is None:
        return f"record of {recipe.name}: {text} is not in its space"
    if math.isinf(cost := recipe.cost(match, config, machine)):
        return f"record of {recipe.name}: {text} is not legal here"
    return Plan(recipe, match, config, cost, record)


def _of_space(config: Config, space: Mapping[str, Sequence[Any]], default: Config | None = None) -> Config | None:
    """The configuration in the values of the space itself, or of the default; None if it is not in it.

    Compared as JSON: there 4.0 and true are no 4 and 1, and lists are what tuples become.
    """
    config_: Config = {}
    for knob, value in config.items():
        known = {json.dumps(choice): choice for choice in (*space[knob], *([default[knob]] if default else []))}
        if (text := json.dumps(value)) not in known:
            return None
        config_[knob] = known[text]
    return config_
