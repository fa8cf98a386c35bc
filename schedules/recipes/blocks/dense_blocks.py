"""Many rows by a weight of 2, 4 or 8 bits in blocks: unpacked a panel at a time, for the tiles of `dense`.

    for unit:                                         rows of a thread, or outputs
        for chunk of the row:
            panel[chunk, tile_o vectors] = (code - zero) * scale          float32, stays in L1 or L2
            for tile: acc[tile] += x panel

Each panel is unpacked once a unit; the more rows a unit has, the less that is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import Stream, seconds
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss
from tvm_ext.ops.block_weights import NAME

from ...blocked import kernel as blocked
from ...blocked.matmul import MatmulRecipe, matmul_kernel, result_index, schedule_matmul
from ...steps.arguments import Arguments
from ...steps.block_weight import BlockMatch, block_match
from ...steps.indices import unflatten
from ...steps.loops import parallel_rows
from ...steps.storage import schedule_decoded

#: Vector instructions that unpack a vector of codes and store it.
_UNPACK = 8
#: The exposed share of the time of codes, which are not prefetched.
_EXPOSED = 0.5


@dataclass(frozen=True)
class DenseBlocksMatch(blocked.BlockedMatch):
    """A matmul of many rows; its problem is over whole blocks of the weight.

    Attributes:
        packed: the weight.
    """

    packed: BlockMatch

    @property
    def copied(self) -> bool:
        """Whether rows are copied, with zeros behind their end."""
        return self.packed.blocks * self.packed.says.block > self.packed.says.depth


class DenseBlocks(MatmulRecipe[DenseBlocksMatch]):
    """A matmul that unpacks panels of its weight, register-blocked over columns and rows."""

    name = "dense_blocks"
    anchors = frozenset({NAME})

    def match(self, group: Group, machine: Machine) -> DenseBlocksMatch | Miss:
        packed = block_match(group, machine)
        if isinstance(packed, Miss):
            return packed
        rows, depth = math.prod(packed.data.shape[:-1]), packed.blocks * packed.says.block
        inner = math.gcd(depth, 16)
        sizes = 1, packed.outputs, rows, rows, depth // inner, (1, 1), inner, machine.lanes
        problem = blocked.Problem(*sizes, weights_in="l2")
        return DenseBlocksMatch(group, packed.data, packed.codes, problem, packed)

    def default(self, match: DenseBlocksMatch, machine: Machine) -> Config:
        """Of the best tile, the longest chunk whose panel leaves half of L1 to rows."""
        best = dict(blocked.default(match.problem, machine))
        panel = 4 * best["tile_o"] * match.problem.lanes * match.problem.inner
        chunks = blocked.space(match.problem, machine)["chunk"]
        return {**best, "chunk": max(c for c in chunks if c == 1 or c * panel <= machine.l1d // 2)}

    def cost(self, match: DenseBlocksMatch, config: Config, machine: Machine) -> float:
        """That of the tiles, and of reading and unpacking all panels of a thread."""
        problem, units = match.problem, blocked.Units.of(match.problem, config)
        panels = units.outer_o * units.outer_p / config["threads"]
        cycles = panels * units.tile_o * problem.steps * _UNPACK / machine.fma_per_cycle
        read = panels / units.outer_o * match.packed.weight_bytes
        unpacking = seconds(cycles, [Stream(read, match.group.weights_in, _EXPOSED)], machine, 1)
        return blocked.cost(problem, config, machine) + unpacking

    def layouts(self, match: DenseBlocksMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        return match.packed.layouts()

    def compute(self, match: DenseBlocksMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, lead = Arguments(match.group, layouts), match.problem, match.group.shape[:-1]
        units = blocked.Units.of(problem, config)
        data = args.decoded(match.data)
        rows = _copied(match, data) if match.copied else lambda q, k: data(*unflatten(q, lead), k)
        panel = _panel(match, args, units)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            return rows(q, block * problem.inner + ri)

        def weight(n: Any, o: Any, block: Any, ry: Any, rx: Any, ri: Any, j: Any) -> Any:
            return panel(o, block, ri, j)

        acc = blocked.reduce_tiles(problem, units, load, weight)
        return matmul_kernel(args, problem, acc, result_index(match.group.shape))

    def schedule(self, sch: Schedule, match: DenseBlocksMatch, config: Config, machine: Machine) -> None:
        if match.copied:
            parallel_rows(sch, sch.get_loops(sch.get_sblock("rows"))[:1], config["threads"])
        else:
            schedule_decoded(sch, match.data, config["threads"], machine.lanes)
        unit = schedule_matmul(sch, match.problem, config, result_index(match.group.shape))
        chunked = config["chunk"] < match.problem.blocks
        panel = sch.get_sblock("panel")
        sch.compute_at(panel, sch.get_loops(sch.get_sblock("acc_update"))[-5] if chunked else unit)
        step, column = sch.get_loops(panel)[-2:]
        vectors, lane = sch.split(column, [None, match.problem.lanes])
        sch.reorder(vectors, step, lane)
        sch.unroll(step)
        sch.vectorize(lane)


def _panel(match: DenseBlocksMatch, args: Arguments, units: blocked.Units) -> te.Tensor:
    """The weight, unpacked as tiles read it: (tiles, blocks, inner, outputs of a tile), the stage "panel"."""
    problem, packed = match.problem, match.packed
    out = units.tile_o * problem.lanes

    def value(o: Any, block: Any, ri: Any, c: Any) -> Any:
        vector = tirx.min(o * units.tile_o + c // problem.lanes, packed.groups * packed.side - 1)
        return packed.decoded(args, vector, c % problem.lanes, block * problem.inner + ri)

    return te.compute((units.outer_o, problem.blocks, problem.inner, out), value, name="panel")


def _copied(match: DenseBlocksMatch, data: te.Tensor) -> te.Tensor:
    """Rows of whole blocks: the stage "rows"."""
    lead, depth = match.group.shape[:-1], match.packed.says.depth

    def value(q: Any, k: Any) -> Any:
        return tirx.if_then_else(k < depth, data(*unflatten(q, lead), k), tirx.const(0, "float32"))

    return te.compute((match.problem.pixels, match.packed.blocks * match.packed.says.block), value, name="rows")
