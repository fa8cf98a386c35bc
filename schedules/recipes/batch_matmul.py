"""Matmul of two computed operands, batched, with fused epilogue.

    matmul(a, b) -> *scale, +bias, ...      a: (..., M, K), b: (..., K, N), batch dimensions broadcast

The tiles are those of `dense`, but b is not known at compile time. Either each unit of work first copies its columns of
b, panel by panel, into a buffer that stays in cache,

    for unit:  pack[K, tile_o * lanes] = b[:, columns of the unit]; tiles of the unit read pack

or tiles read b where it lies: with few rows a copy is never worth it, and a b that fits L1 needs none. Operands may lie
transposed: a is read one value at a time and takes any order; a transposed b is turned while it is packed.

Where the length of the sums is known at run time, K is one block, whose loop ends there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import level_of, seconds
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss, Param

from ..blocked import kernel as blocked
from ..blocked.matmul import MatmulRecipe, matmul_kernel, matmul_problem, result_index, schedule_matmul
from ..steps.arguments import Arguments
from ..steps.indices import unflatten
from ..steps.storage import Reader, schedule_decoded, why_not_float32

#: Bytes a cycle that packing copies.
_PACK_BYTES = 12.0
#: Rows of a panel this many bytes apart fall in few sets of L1, and need many translations of pages.
_STRIDE_LIMIT = 512


@dataclass(frozen=True)
class BatchMatch(blocked.BlockedMatch):
    """A matmul of two operands.

    Attributes:
        batched: whether the right operand has matrices of a batch; else all leading dimensions are rows.
    """

    batched: bool

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading dimensions of the result: those of the batch, or the rows."""
        return self.group.shape[:-2] if self.batched else self.group.shape[:-1]

    @property
    def length(self) -> Any:
        """Of the sums: a number, or an expression."""
        return self.group.extent(self.weight, len(self.weight.shape) - 2)


class BatchMatmul(MatmulRecipe[BatchMatch]):
    """Register-blocked matmul that packs its right operand itself, if it pays."""

    name = "batch_matmul"
    anchors = frozenset({"relax.matmul"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> BatchMatch | Miss:
        left, right = group.operand(0), group.operand(1)
        if left is None or right is None:
            return Miss("an operand is computed inside the group")
        if right.constant and len(right.shape) == 2:
            return Miss(f"the right operand {right.shape} is a constant matrix: dense packs it at compile time")
        if min(len(left.shape), len(right.shape)) < 2:
            return Miss(f"operands {left.shape} and {right.shape}: both need two dimensions or more")
        if why := why_not_float32(group, left, right):
            return Miss(why)
        if 0 in left.shape + right.shape:
            return Miss("an operand is empty")
        batched = math.prod(right.shape[:-2]) > 1
        batch = math.prod(group.shape[:-2]) if batched else 1
        rows = group.shape[-2] if batched else math.prod(group.shape[:-1])
        k, n = right.shape[-2:]
        problem = matmul_problem(batch, rows, k, n, machine)
        computed = level_of(4 * math.prod(right.shape), machine)  # the right operand was written by a kernel before
        problem = replace(problem, weights_in=computed, prefetched=False)
        match = BatchMatch(group, left, right, problem, batched)
        return match if isinstance(match.length, int) else replace(match, problem=replace(problem, blocks=1, inner=k))

    def space(self, match: BatchMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        knobs = super().space(match, machine)
        return {**knobs, "pack": [False, True] if match.problem.outputs % match.problem.lanes == 0 else [True]}

    def default(self, match: BatchMatch, machine: Machine) -> Config:
        """The tile of least estimate, packed or not; one of whole columns where it does not fit in place."""
        tile, knobs = super().default(match, machine), self.space(match, machine)
        tiles = [tile]
        if math.isinf(self.cost(match, {**tile, "pack": False}, machine)):
            whole = [o for o in knobs["tile_o"] if match.problem.output_blocks % o == 0]
            tiles += [{**tile, "tile_o": o, "tile_p": p} for o in whole for p in knobs["tile_p"]]
        points = [{**each, "pack": pack} for each in tiles for pack in knobs["pack"]]
        return min(points, key=lambda config: self.cost(match, config, machine))

    def cost(self, match: BatchMatch, config: Config, machine: Machine) -> float:
        problem, units = match.problem, blocked.Units.of(match.problem, config)
        panel = 4 * problem.steps * units.tile_o * problem.lanes
        if config["pack"]:
            packing = problem.batch * units.outer_o * units.outer_p * panel / _PACK_BYTES / config["threads"]
            return super().cost(match, config, machine) + seconds(packing, [], machine, 1)
        if units.padded_blocks != problem.output_blocks and blocked.registers_used(config) == machine.registers:
            return math.inf  # LLVM advances the last vector's address apart, and spills an accumulator in each step
        scattered = 4 * problem.outputs >= _STRIDE_LIMIT and panel >= machine.l1d // 4
        return super().cost(match, config, machine) * (1.3 if scattered and units.tiles_p > 1 else 1.0)

    def layouts(self, match: BatchMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        pairs = zip(match.group.params, offered, strict=True)
        params = tuple(self._layout(match, config, param, own) for param, own in pairs)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def _layout(self, match: BatchMatch, config: Config, param: Param, offered: Layout) -> Layout:
        """What an operand is read as: anything in order of axes, but a b that is not packed needs its columns last."""
        plain = Layout.plain(len(param.shape))
        if param not in (match.data, match.weight) or offered.block or type(offered) is not Layout:
            return plain
        if param is match.weight and not config["pack"] and offered.order[-1] != len(param.shape) - 1:
            return plain
        return offered

    def compute(self, match: BatchMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, units = Arguments(match.group, layouts), match.problem, blocked.Units.of(match.problem, config)
        left = _broadcast(match.data, args.decoded(match.data), args.layout(match.data))
        panel = _broadcast(match.weight, args.reader(match.weight), args.layout(match.weight))
        index = result_index(match.group.shape, match.batched)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            return left(index(n, q, block * problem.inner + ri))

        def right(n: Any, k: Any, c: Any) -> Any:
            return panel((*unflatten(n, match.lead), k, c) if match.batched else (k, c))

        weight = (_packed if config["pack"] else _in_place)(problem, units, right)
        inner = None if isinstance(match.length, int) else match.length
        acc = blocked.reduce_tiles(problem, units, load, weight, inner=inner)
        return matmul_kernel(args, problem, acc, index)

    def schedule(
        self, sch: Schedule, match: BatchMatch, config: Config, machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:  # fmt: skip
        schedule_decoded(sch, match.data, config["threads"], machine.lanes)
        index = result_index(match.group.shape, match.batched)
        unit = schedule_matmul(sch, match.problem, config, index, blocker=blocker)
        if config["pack"]:
            pack = sch.get_sblock("pack")
            sch.compute_at(pack, unit, preserve_unit_loops=True)
            sch.vectorize(sch.split(sch.get_loops(pack)[-1], [None, match.problem.lanes])[1])


def _broadcast(param: Param, tensor: Reader, layout: Layout) -> Any:
    """Reads a parameter at an index of the broadcast result; of dimensions it lacks or that are 1, the first."""

    def read(index: Sequence[Any]) -> Any:
        tail = list(index)[-len(param.shape) :]
        full = [0] * (len(param.shape) - len(tail)) + tail
        return tensor(*layout.index([0 if d == 1 else i for d, i in zip(param.shape, full, strict=True)]))

    return read


def _packed(problem: blocked.Problem, units: blocked.Units, right: Any) -> blocked.LoadWeight:
    """Panels (batch, units, K, columns of a unit) of the right operand; columns beyond the last are zero."""
    width = units.tile_o * problem.lanes

    def value(n: Any, o: Any, k: Any, j: Any) -> Any:
        if units.outer_o * width == problem.outputs:
            return right(n, k, o * width + j)
        return tirx.if_then_else(o * width + j < problem.outputs, right(n, k, o * width + j), tirx.const(0, "float32"))

    pack = te.compute((problem.batch, units.outer_o, problem.steps, width), value, name="pack")
    return lambda n, o, block, ry, rx, ri, j: pack(n, o, block * problem.inner + ri, j)


def _in_place(problem: blocked.Problem, units: blocked.Units, right: Any) -> blocked.LoadWeight:
    """The right operand where it lies; vectors beyond the last are the last one again."""
    lanes, last = problem.lanes, problem.output_blocks - 1

    def weight(n: Any, o: Any, block: Any, ry: Any, rx: Any, ri: Any, j: Any) -> Any:
        vector = o * units.tile_o + tirx.floordiv(j, lanes)
        if units.padded_blocks != problem.output_blocks:
            vector = tirx.min(vector, last)
        return right(n, block * problem.inner + ri, vector * lanes + tirx.floormod(j, lanes))

    return weight
