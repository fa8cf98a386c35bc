"""Suspects: what can be switched off in a compile, of each kind, with all that a report says of it."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tvm.ir import Call, GlobalVar, IRModule

from ...core.errors import OptionError, did_you_mean
from ...core.graph.relax_graph import main_bindings
from ...core.instruments import KINDS, Switches
from ...core.passes import CompileContext
from ...driver.records import place_of, record_at
from ...passes.lowering.choose_recipes import ChooseRecipes, matches
from ...passes.lowering.offload import Offload
from ...passes.lowering.schedule_kernels import metaschedule_record
from ...passes.pipeline import Pipeline, pipeline
from ...schedules import recipes
from .result import Culprit


@dataclass(frozen=True)
class Suspect:
    """One thing that can be switched off: what `Switches` knows it by, and what to say of it if it is to blame."""

    key: str
    culprit: Culprit


@dataclass(frozen=True)
class Suspects:
    """All of one kind.

    Attributes:
        items: that did something in the compile with everything on.
        idle: that did nothing; with others off they may.
        kept: what cannot be switched off, and why not.
    """

    kind: str
    items: tuple[Suspect, ...]
    idle: tuple[Suspect, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


@dataclass
class Seen:
    """What was seen of one program in the compile with everything on.

    Attributes:
        ctx: its context, as it was at the end.
        changed: names of passes that changed the module.
        groups: grouped function -> ONNX nodes of its calls.
    """

    ctx: CompileContext
    changed: set[str] = field(default_factory=set)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _last: IRModule | None = None

    def see(self, step: str, mod: IRModule) -> None:
        """Note a step; see :data:`tvm_ext.core.instruments.Watch`."""
        if self._last is not None and not mod.same_as(self._last):
            self.changed.add(step)
        self._last = mod
        if step == ChooseRecipes.name:
            for binding in main_bindings(mod):
                if isinstance(call := binding.value, Call) and isinstance(call.op, GlobalVar):
                    name, nodes = call.op.name_hint, self.ctx.provenance.of(binding.var.name)
                    self.groups[name] = tuple(dict.fromkeys((*self.groups.get(name, ()), *nodes)))


def switches(kind: str, off: Iterable[Suspect]) -> Switches:
    """The switches of a compile in which some suspects are off."""
    return Switches(**{KINDS[kind]: frozenset(suspect.key for suspect in off)})


def switches_of(named: Iterable[tuple[str, str]]) -> Switches:
    """The switches for (kind, name) as reports have them: a record goes by "FILE:LINE".

    Raises:
        OptionError: a name is none of its kind that can be off.
    """
    off: dict[str, set[str]] = {field: set() for field in KINDS.values()}
    needs = {step.name: step.needed for step in pipeline().passes}
    for kind, name in named:
        known = {"recipe": [r.name for r in recipes()], "pass": [*needs, Offload.name]}.get(kind)
        if known is not None and name not in known:
            fix = did_you_mean(name, known) or f"choose of: {', '.join(dict.fromkeys(known))}"
            raise OptionError(f"off: {name!r} is no {kind}", fix=fix)
        if kind == "pass" and (needed := needs.get(name, "")):
            raise OptionError(f"off: pass {name!r} is always on: {needed}")
        is_row = kind == "record" and not name.startswith("MetaSchedule: ")
        off[KINDS[kind]].add(record_at(name).to_row() if is_row else name)
    return Switches(**{field: frozenset(names) for field, names in off.items()})


def suspects(kind: str, programs: Iterable[Seen]) -> Suspects:
    """All suspects of a kind.

    Args:
        programs: of the compile with everything on; several if there is one a size of a symbolic batch.
    """
    active: dict[str, Suspect] = {}
    idle: dict[str, Suspect] = {}
    kept: dict[str, str] = {}
    for seen in programs:
        for suspect, did in _FINDERS[kind](seen):
            if isinstance(suspect, Suspect):
                (active if did else idle).setdefault(suspect.key, suspect)
            else:
                kept.setdefault(*suspect)
    rest = tuple(suspect for key, suspect in idle.items() if key not in active)
    return Suspects(kind, tuple(active.values()), rest, tuple(kept.items()))


_Found = Iterator["tuple[Suspect | tuple[str, str], bool]"]
"""A suspect and whether it did something; or what is always on, and why."""


def _passes(seen: Seen) -> _Found:
    ctx = seen.ctx
    for step in Pipeline.of(ctx.options).passes:
        if step.needed:
            yield (step.name, step.needed), True
            continue
        events = [event for report in ctx.reports if report.name == step.name for event in report.fired]
        nodes = tuple(dict.fromkeys(event.value for event in events if event.value))
        texts = tuple(f"{event.value}: {event.detail}" for event in events)
        culprit = Culprit("pass", step.name, nodes, texts, switch=f"pass={step.name}")
        yield Suspect(step.name, culprit), step.name in seen.changed


def _recipes(seen: Seen) -> _Found:
    nodes = _recipe_nodes(seen)
    groups = [plan.match.group for plan in seen.ctx.plans.values()]
    taking = {recipe.name for group in groups for recipe, _ in matches(group, seen.ctx.machine)}
    for taken in sorted(recipes(), key=lambda recipe: recipe.name not in nodes):
        culprit = Culprit("recipe", taken.name, nodes.get(taken.name, ()), switch=f"recipe={taken.name}")
        yield Suspect(taken.name, culprit), taken.name in taking
    others = {kernel.recipe for kernel in seen.ctx.kernels.values()} - {recipe.name for recipe in recipes()}
    for name in sorted(others):
        yield (name, "no recipe: it is what the compiler makes of what no recipe takes"), True


def _recipe_nodes(seen: Seen) -> dict[str, tuple[str, ...]]:
    nodes: dict[str, tuple[str, ...]] = {}
    for group, plan in seen.ctx.plans.items():
        of_recipe = (*nodes.get(plan.recipe.name, ()), *seen.groups.get(group, ()))
        nodes[plan.recipe.name] = tuple(dict.fromkeys(of_recipe))
    return nodes


def _layers(seen: Seen) -> _Found:
    for group, plan in seen.ctx.plans.items():
        nodes, switch = seen.groups.get(group, ()), f"layer={group}"
        yield Suspect(group, Culprit("layer", group, nodes, (), plan.recipe.name, plan.config, switch=switch)), True
    for kernel in seen.ctx.kernels.values():
        if kernel.plan is None and kernel.calls:
            yield (kernel.name, f"no recipe made it ({kernel.recipe})"), True


def _records(seen: Seen) -> _Found:
    ctx = seen.ctx
    for group, plan in ctx.plans.items():
        if plan.record is not None:
            place, nodes = place_of(plan.record, ctx.options), seen.groups.get(group, ())
            culprit = Culprit(
                "record", place or f"a record of {plan.recipe.name}", nodes, (), plan.recipe.name, plan.config,
                plan.record.session or "none", place, f"record={place}",
            )  # fmt: skip
            yield Suspect(plan.record.to_row(), culprit), True
    for kernel in ctx.kernels.values():
        if ctx.schedules is not None and kernel.record == "MetaSchedule":
            key = metaschedule_record(kernel)
            nodes, switch = tuple(dict.fromkeys(itertools.chain(*kernel.calls))), f"record={key}"
            kind = (kernel.recipe, kernel.config, "MetaSchedule")
            yield Suspect(key, Culprit("record", key, nodes, (), *kind, switch=switch)), True


def _offloaded(seen: Seen) -> _Found:
    for region in seen.ctx.offload.regions if seen.ctx.offload else ():
        if region.host_seconds is None:
            yield (region.name, "nothing else here computes its nodes"), True
            continue
        for nodes, (pattern, operators) in zip(region.anchors, region.composites, strict=True):
            said = f"{region.backend}'s pattern {pattern}: {', '.join(op.removeprefix('relax.') for op in operators)}"
            culprit = Culprit("offload", nodes[0], nodes, (said,), place=region.name, switch=f"offload={nodes[0]}")
            yield Suspect(nodes[0], culprit), True


_FINDERS: dict[str, Callable[[Seen], _Found]] = {
    "offload": _offloaded, "record": _records, "recipe": _recipes, "pass": _passes, "layer": _layers,
}  # fmt: skip
