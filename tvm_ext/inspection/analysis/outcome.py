"""What the passes make of a model, up to the choice of recipes: no kernel is made, nothing is compiled."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm.ir import Call, GlobalVar, IRModule

from ...core.graph.ownership import FOLD, OFFLOAD
from ...core.graph.relax_graph import READINGS, dtype_of, iter_groups, main_bindings, op_name, shape_of, tuple_item
from ...core.group import Group
from ...core.machine import machine_for
from ...core.options import CompileOptions
from ...core.passes import CompileContext
from ...driver.lower import NO_INSTRUMENTS, Clock, run_pipeline, start
from ...frontend.importer import imported
from ...frontend.reading.reader import Source
from ...passes.lowering.assign_layouts import AssignLayouts
from ...passes.lowering.choose_recipes import ChooseRecipes
from ...passes.lowering.group_operations import GroupOperations
from .result import Generic
from .survey import Survey


@dataclass(frozen=True)
class Outcome:
    """What became of the nodes of a model.

    Attributes:
        becomes: node -> the recipe, "generic", "offload:NAME", or the pass that left nothing of it.
        notes: node -> what passes did about it, "pass: what".
        generic: operations that no recipe takes.
        passes: (name, rewrites) of passes that did something, in order.
    """

    becomes: Mapping[str, str]
    notes: Mapping[str, tuple[str, ...]]
    generic: tuple[Generic, ...]
    passes: tuple[tuple[str, int], ...]

    def action(self, node: str) -> str:
        """What the passes do about a node; "" for nothing."""
        return "; ".join(self.notes.get(node, ()))


NOTHING = Outcome({}, {}, (), ())


def outcome(surveyed: Survey, source: Source, options: CompileOptions) -> Outcome:
    """Run the passes.

    Args:
        surveyed: a model; it is imported again if a node of it was refused, for the fallback to take.
        source: the same.
        options: of the compile; shapes are those of the survey.

    Raises:
        OptionError, UnsupportedError: as `tvm_ext.compile`.
    """
    shapes = tuple((spec.name, spec.shape) for spec in surveyed.checked.inputs)
    options = replace(options, shapes=shapes, specialize=())
    seen = None if surveyed.refused else imported(surveyed.checked, surveyed.trace, source.name)
    begun = start(source, options, machine_for(options), Clock(), NO_INSTRUMENTS, imported=seen)
    lowered = run_pipeline(begun, until=AssignLayouts)
    mod, ctx = lowered.mod, lowered.ctx
    generic = _generic(mod, ctx)
    done = [(report.name, len(report.fired)) for report in ctx.reports if report.fired]
    before = itertools.takewhile(lambda step: step[0] != GroupOperations.name, done)
    return Outcome(_becomes(mod, ctx), _notes(ctx), generic, tuple(before))


def _notes(ctx: CompileContext) -> dict[str, tuple[str, ...]]:
    notes_of = {node: [f"{step}: {what}" for step, what in done] for node, done in ctx.ownership.passes.items()}
    for node, owner in ctx.ownership.gone.items():
        notes = notes_of.setdefault(node, [])
        if (note := f"{owner.name}: {owner.reason}") not in notes:
            notes.append(note)
    return {node: tuple(notes) for node, notes in notes_of.items()}


def _becomes(mod: IRModule, ctx: CompileContext) -> dict[str, str]:
    becomes = {node: f"folded by {owner.name}" for node, owner in ctx.ownership.gone.items() if owner.kind == FOLD}
    for binding in main_bindings(mod):
        kind = _kind(binding.value, ctx)
        for node in ctx.provenance.of(binding.var.name):
            if kind and becomes.get(node, "memory") == "memory":
                becomes[node] = kind
    return becomes


def _kind(value: Any, ctx: CompileContext) -> str:
    """The recipe of a group's call, and what else a binding can be; "" for an item of a tuple."""
    if tuple_item(value):
        return ""
    name = _callee(value)
    if name in ctx.kernels:
        return ctx.kernels[name].recipe if ctx.kernels[name].recipe.startswith(OFFLOAD) else "generic"
    if isinstance(value, Call) and isinstance(value.op, GlobalVar):
        plan = ctx.plans.get(value.op.name_hint)
        return plan.recipe.name if plan else "generic"
    return "memory" if op_name(value) in READINGS else "generic"


def _callee(value: Any) -> str:
    """The kernel that a call_tir calls."""
    return str(value.args[0].name_hint) if op_name(value) == "relax.call_tir" else ""


def _generic(mod: IRModule, ctx: CompileContext) -> tuple[Generic, ...]:
    nodes: dict[str, dict[str, None]] = {}
    alone = []
    for binding in main_bindings(mod):
        name = binding.var.name
        if _kind(binding.value, ctx) != "generic":
            continue
        if not op_name(binding.value):
            called = binding.value.op.name_hint
            nodes.setdefault(called, {}).update(dict.fromkeys(ctx.provenance.of(name)))
            continue
        operation, reason = op_name(binding.value), ctx.why_skipped(GroupOperations, variable=name)
        if function := _callee(binding.value):  # what a converter of TVM's made of TIR
            operation, reason = function, "its converter makes a kernel of it, and no operator"
        operation, reason = operation.removeprefix("relax."), reason or "no operator that recipes take"
        nodes_of = ctx.provenance.of(name)
        alone.append(Generic(nodes_of, operation, dtype_of(binding.var), shape_of(binding.var), reason))
    grouped = [
        _grouped(Group(gvar.name_hint, function), tuple(nodes[gvar.name_hint]), ctx)
        for gvar, function in iter_groups(mod)
        if gvar.name_hint in nodes
    ]
    return (*grouped, *alone)


def _grouped(group: Group, nodes: tuple[str, ...], ctx: CompileContext) -> Generic:
    names = [op_name(binding.value).removeprefix("relax.") for binding in group.bindings]
    reason = ctx.why_skipped(ChooseRecipes, value=group.name) or "no recipe for this operation"
    return Generic(nodes, ", ".join(names), group.dtype, group.shape, reason)
