"""Recurrences of RNN, GRU and LSTM over all steps as one kernel (:mod:`..steps.recurrent_kernel`).

    tvm_ext.recurrence(x, r, ...)       x: (S, N, D * G * H), r: (D, G * H, H) as DGK{g}g{l}h  ->  (finals + S, D, N, H)

What a step costs is reading r, which all steps read again and which one thread's caches may not hold, and the chain of
products and activations from one h to the next, which nothing shortens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, Op
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import Stream, launch_seconds, level_of, seconds, thread_counts
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.relax_graph import scalar_of
from tvm_ext.core.group import SUMS
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss, Param, Recipe, Sharing
from tvm_ext.ops.recurrence import NAME, Recurrence

from ..steps.recurrent_kernel import RecurrentKernel, RecurrentMatch, Tile

#: Vector instructions of an activation, with what is loaded and stored around it.
_ACTIVATION = 24
#: Cycles from a multiply-add to the next one that adds to its sum.
_LATENCY = 4
#: Vectors that a core loads in a cycle.
_LOADS = 2


class Recurrent(Recipe[RecurrentMatch]):
    """All steps of a recurrent operator, in all its directions."""

    name = "recurrent"
    anchors = frozenset({NAME})
    any_size = True

    def match(self, group: Group, machine: Machine) -> RecurrentMatch | Miss:
        return taken(group)

    def space(self, match: RecurrentMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """The register tile, and what threads share: rows and directions, or the units of each step."""
        lanes = machine.lanes // (2 if match.dtype == "float64" else 1)
        while lanes > 1 and match.hidden <= lanes // 2:
            lanes //= 2
        blocks = -(-match.hidden // lanes)
        flops = 2.0 * match.steps * match.batch * match.directions * match.says.gates * match.hidden**2
        cycles = flops / (2 * machine.lanes * machine.fma_per_cycle)
        return {
            "lanes": [lanes],
            "blocks": [b for b in (1, 2, 3, 4, 6, 8) if b <= blocks],
            "rows": [r for r in (1, 2, 3, 4, 6, 8) if r <= match.batch],
            "threads": thread_counts(cycles, machine),
            "share": ["rows", "units"],
        }

    def cost(self, match: RecurrentMatch, config: Config, machine: Machine) -> float:
        tile, weight = Tile.of(config), match.weight(config["lanes"])
        gates = max(count for _, count in weight.phases)
        vectors = tile.rows * tile.blocks * gates
        if vectors > 1 and vectors + min(tile.blocks * gates, 4) + 1 > machine.registers:
            return math.inf
        threads = self.sharing(match, config, machine).threads
        if (threads < tile.threads) or (tile.by_units and threads == 1):
            return math.inf
        rows, blocks, sequences = _busiest(match, tile)
        loads = (tile.blocks * gates + tile.rows) / _LOADS
        tiles = math.ceil(rows / tile.rows) * math.ceil(blocks / tile.blocks) * weight.gates / gates
        products = tiles * match.hidden * max(vectors / machine.fma_at(tile.lanes), loads, _LATENCY)
        elements = rows * blocks * (match.says.gates + (match.says.kind == "LSTM")) * _ACTIVATION
        steps = match.steps * sequences
        streams = _streams(match, tile, machine, threads)
        launches = match.steps * match.directions * len(weight.phases) - 1 if tile.by_units else 0
        working = seconds(steps * (products + elements), streams, machine, threads)
        return working + launches * launch_seconds(machine, threads)

    def sharing(self, match: RecurrentMatch, config: Config, machine: Machine) -> Sharing:
        """Blocks of units, or directions and rows of the batch."""
        tile = Tile.of(config)
        if tile.by_units:
            return Sharing.of_rows(-(-match.hidden // tile.lanes), tile.threads)
        parts = tile.parts(match)
        rows, _, sequences = _busiest(match, tile)
        threads = min(tile.threads, match.directions * parts)
        return Sharing(threads, match.directions * match.batch, rows * sequences)

    def layouts(self, match: RecurrentMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        """The weight is packed; the input's part is read in any order of steps and rows."""
        own: dict[relax.Var, Layout] = {}
        if match.packed is not None:
            own[match.packed.var] = match.weight(config["lanes"])
        x = match.operands["input"]
        for param, layout in zip(match.group.params, offered, strict=True):
            if param is x and type(layout) is Layout and layout.block is None and layout.order[-1] == 2:
                own[param.var] = layout
        return Layouts.plain(match.group, own)

    def compute(self, match: RecurrentMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        return RecurrentKernel(match, config, layouts).function()

    def schedule(self, sch: Schedule, match: RecurrentMatch, config: Config, machine: Machine) -> None:
        """A step reads what the step before wrote, which no schedule primitive moves: loops stand already."""


def taken(group: Group) -> RecurrentMatch | Miss:
    """A group as a recurrence, or why it is none that a kernel computes."""
    assert group.call is not None
    says = Recurrence.of(group.call)
    operands: dict[str, Param | float] = {}
    for number, role in enumerate(says.operands):
        known = group.operand(number)
        operand = scalar_of(group.call.args[number]) if known is None else known
        if operand is None:
            return Miss(f"operand {role!r} is computed inside the group")
        operands[role] = operand
    kinds = {p.computed for role, p in operands.items() if isinstance(p, Param) and role != "lengths"}
    if len(kinds | {group.computed}) > 1 or group.computed not in ("float32", "float64"):
        return Miss(f"types {', '.join(sorted(kinds | {group.computed}))}: one of float32 and float64 is computed")
    x, r = ((arg.ty.shape.values) for arg in group.call.args[:2])
    if 0 in (sizes := [int(d) for d in (*x, *r)]):
        return Miss("an operand is empty")
    if not _known_units(group, operands):
        return Miss("the number of units or directions is only known at run time")
    return RecurrentMatch(group, says, operands, sizes[0], sizes[1], sizes[3], sizes[5])


def _known_units(group: Group, operands: Mapping[str, Param | float]) -> bool:
    """Whether only steps and rows have extents that are known at run time."""
    x, r = operands["input"], operands["recurrent"]
    axes = [(x, 2), (r, 0), (r, 1), (r, 2)]
    return all(isinstance(group.extent(p, axis), int) for p, axis in axes if isinstance(p, Param))


def _streams(match: RecurrentMatch, tile: Tile, machine: Machine, threads: int) -> list[Stream]:
    """What a thread reads and writes beside its registers: the weight in each step, and what of it is a tile's for each
    further tile of rows; inputs and outputs once."""
    rows, blocks, sequences = _busiest(match, tile)
    word, steps = 8 if match.dtype == "float64" else 4, match.steps * sequences
    weight = word * match.says.gates * match.hidden * blocks * tile.lanes
    again = weight * (math.ceil(rows / tile.rows) - 1)
    moved = word * rows * blocks * tile.lanes * (match.says.gates + 1) * steps
    return [
        Stream(weight * steps, level_of(weight, machine, threads)),
        Stream(again * steps, level_of(weight * min(tile.blocks, blocks) / blocks, machine, threads)),
        Stream(moved, level_of(moved, machine, threads)),
    ]


def _busiest(match: RecurrentMatch, tile: Tile) -> tuple[int, int, int]:
    """Of the thread with the most: rows of a sequence, blocks of units, and sequences, one after the other."""
    blocks = -(-match.hidden // tile.lanes)
    if tile.by_units:
        return match.batch, -(-blocks // min(tile.threads, blocks)), match.directions
    parts = tile.parts(match)
    units = match.directions * parts
    return -(-match.batch // parts), blocks, -(-units // min(tile.threads, units))


def legalized(builder: relax.BlockBuilder, call: Call) -> relax.Expr:
    """The operator as a kernel of one thread for any CPU, where no recipe takes it.

    Raises:
        UnsupportedError: of what it is called with; names the reason.
    """
    match = taken(Group.of_call(call))
    if isinstance(match, Miss):
        raise UnsupportedError(f"{NAME}: {match.reason}", fix="compute it in float32")
    config = {"lanes": 4, "blocks": 1, "rows": 1, "threads": 1, "share": "rows"}
    kernel = RecurrentKernel(match, config, Layouts.plain(match.group)).function()
    kernel = kernel.with_attr(SUMS, match.steps * match.hidden)
    return relax.call_tir(builder.add_func(kernel, "recurrence"), list(call.args), call.ty)


Op.get(NAME).set_attr("FLegalize", legalized)
