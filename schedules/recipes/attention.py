"""Attention by blocks with online softmax: the scores are never stored.

    softmax(q k^T * scale + bias) v        q: (B, S, N, D), k: (B, T, N, D), v: (B, T, N, E) -> (B, S, N, E)

The kernel is in attention_kernel.py; here is what it takes, its knobs and what they cost.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import seconds, thread_counts
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss, Param, Recipe, Sharing

from ..steps.attention_kernel import AttentionKernel, AttentionMatch, Tile
from ..steps.storage import why_not_float32

#: Vector instructions of an exponential with the subtraction before it, the sum and the store after it.
_EXP = 22


class Attention(Recipe[AttentionMatch]):
    """Scaled dot-product attention over heads."""

    name = "attention"
    anchors = frozenset({"relax.nn.attention", "relax.nn.attention_bias"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> AttentionMatch | Miss:
        assert group.call is not None
        operands = [p for i in range(len(group.call.args)) if (p := group.operand(i)) is not None]
        if len(operands) < len(group.call.args):
            return Miss("an operand is computed inside the group")
        attrs = group.call.attrs
        if attrs.causal_mask is not None or attrs.window_size is not None:
            return Miss("a causal mask or a window is an attribute; this recipe takes it as a bias")
        if why := why_not_float32(group, *operands):
            return Miss(why)
        if any(0 in p.shape for p in operands):
            return Miss("an operand is empty")
        query, key, value, *bias = operands
        if not isinstance(group.extent(query, 3), int):
            return Miss("the length of a query is only known at run time")
        scale = 1 / math.sqrt(query.shape[3]) if attrs.scale is None else float(attrs.scale.value)
        return AttentionMatch(group, query, key, value, bias[0] if bias else None, scale)

    def space(self, match: AttentionMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Vectors of queries in a unit, keys in a block; the register tiles follow from the machine."""
        rows, keys, width = match.query.shape[1], match.key.shape[1], match.value.shape[3]
        wide = machine.registers >= 32
        lanes = machine.lanes
        while lanes > 4 and rows <= lanes // 2:
            lanes //= 2
        value_lanes = _value_lanes(width, machine)
        tile_v = next(t for t in range(6 if wide else 2, 0, -1) if -(-width // value_lanes) % t == 0)
        fitting = (t for t in (8, 4, 2, 1) if t * tile_v + tile_v + 1 <= machine.registers - 4 and lanes % t == 0)
        cycles = _flops(match) / (2 * machine.lanes * machine.fma_per_cycle)
        return {
            "lanes": [lanes],
            "vectors": [1, 2] if rows > lanes else [1],
            "keys": sorted({min(size, -(-keys // 8) * 8) for size in (64, 128, 256)}),
            "tile_k": [8 if wide else 4],
            "tile_q": [next(fitting)],
            "tile_v": [tile_v],
            "value_lanes": [value_lanes],
            "threads": thread_counts(cycles, machine),
        }

    def cost(self, match: AttentionMatch, config: Config, machine: Machine) -> float:
        tile = Tile.of(match, config)
        products = tile.keys * (tile.vectors * tile.depth + tile.queries * tile.columns / tile.value_lanes)
        # Two vectors of queries share each value of k that is broadcast.
        products *= (1.0 if tile.vectors > 1 else 1.02) / machine.fma_per_cycle
        state = -(-tile.keys // tile.block) * tile.queries * (2 * tile.columns / tile.value_lanes + 2)
        memory = 4 * tile.queries * (tile.block + tile.depth + tile.columns)
        cycles = (products + _EXP * tile.keys * tile.vectors) * (1.0 if memory <= machine.l1d else 1.03) + state
        turn = tile.queries * (tile.depth + 2 * tile.columns / tile.value_lanes)
        return seconds(-(-tile.units // config["threads"]) * (cycles + turn), [], machine, config["threads"])

    def sharing(self, match: AttentionMatch, config: Config, machine: Machine) -> Sharing:
        """Queries of all heads, in whole vectors."""
        tile = Tile.of(match, config)
        units = Sharing.of_rows(tile.units, config["threads"])
        queries = -(-tile.rows // tile.lanes) * tile.lanes
        return Sharing(units.threads, tile.batch * tile.heads * queries, units.busiest * tile.queries)

    def layouts(self, match: AttentionMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        """Operands are read in any order of axes; v with the axis of its vectors last."""

        def layout(param: Param, own: Layout) -> Layout:
            operand = any(param is p for p in (match.query, match.key, match.value, match.bias))
            in_order = own.block is None and type(own) is Layout
            if operand and in_order and (param is not match.value or own.order[-1] == 3):
                return own
            return Layout.plain(len(param.shape))

        params = tuple(itertools.starmap(layout, zip(match.group.params, offered, strict=True)))
        return Layouts(params, Layout.plain(4))

    def compute(self, match: AttentionMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        return AttentionKernel(match, config, layouts).function()

    def schedule(self, sch: Schedule, match: AttentionMatch, config: Config, machine: Machine) -> None:
        """The loop over blocks of keys carries its state, which no schedule primitive moves: loops stand already."""


def _value_lanes(width: int, machine: Machine) -> int:
    """Lanes of the vectors of v: those that take a row in the least time; of equal ones, those that divide it.

    A head of 15 is one vector of 16 lanes, out of a copy of its rows that is padded, and not 15 vectors of one.
    """
    choices = [lanes for lanes in (machine.lanes >> i for i in range(machine.lanes.bit_length())) if lanes]
    return min(choices, key=lambda lanes: (-(-width // lanes) / machine.fma_at(lanes), width % lanes > 0, -lanes))


def _flops(match: AttentionMatch) -> float:
    batch, queries, heads, depth = match.query.shape
    return 2.0 * batch * heads * queries * match.key.shape[1] * (depth + match.value.shape[3])
