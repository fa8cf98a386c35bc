"""What kernels of weights of few bits share (:mod:`tvm_ext.ops.block_weights`): operands, layouts, unpacking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call

from tvm_ext.core.graph.relax_graph import op_name
from tvm_ext.core.numbers.block_codes import PackedCodes, PackedScales
from tvm_ext.core.recipe import Group, Layout, Layouts, Machine, Match, Miss, Param
from tvm_ext.ops.block_weights import Blocks

from .arguments import Arguments
from .storage import why_not_float32

RMS_NORM = "relax.nn.rms_norm"


@dataclass(frozen=True)
class RowNorm:
    """What is done to rows before they are multiplied: x / sqrt(mean of x^2 + epsilon) * weight."""

    weight: Param
    epsilon: float


@dataclass(frozen=True)
class BlockMatch(Match):
    """A group whose anchor reads a weight of few bits.

    Attributes:
        says: of the weight.
        data: the rows that it is multiplied by, or the indices of rows that are picked.
        codes, scales, points: of the weight; no points where one code stands for 0.
        lanes: outputs of a vector.
        side: vectors that stand side by side in memory, and are computed together where rows are few.
        halves: whether scales of float16 are read as such, and not widened when they are packed.
        norm: of the rows; None if they are multiplied as they are.
        beside: variable of a further anchor -> a weight of as many outputs that the same rows are multiplied by.
    """

    says: Blocks
    data: Param
    codes: Param
    scales: Param
    points: Param | None
    lanes: int
    side: int
    halves: bool
    norm: RowNorm | None = None
    beside: tuple[tuple[relax.Var, BlockMatch], ...] = ()

    @property
    def outputs(self) -> int:
        """N."""
        return self.codes.shape[0]

    @property
    def groups(self) -> int:
        """Groups of vectors that stand side by side."""
        return -(-self.outputs // (self.lanes * self.side))

    @property
    def blocks(self) -> int:
        """Blocks of a row of the weight."""
        return self.codes.shape[1]

    @property
    def words(self) -> int:
        """Words of a block of one output."""
        return self.codes.shape[2] // 4

    @property
    def parts(self) -> int:
        """Codes of a byte."""
        return 8 // self.says.bits

    @property
    def weight_bytes(self) -> int:
        """Of codes, scales and points in memory, of all weights."""
        others = sum(other.weight_bytes for _, other in self.beside)
        each = 4 * self.words + self._bytes(self.scales) + (self._bytes(self.points) if self.points else 0)
        return others + self.groups * self.side * self.lanes * self.blocks * each

    def _bytes(self, param: Param) -> int:
        return {"uint8": 1, "float16": 2 if self.halves else 4}.get(param.dtype, 4)

    def goes_with(self, other: BlockMatch) -> bool:
        """Whether the rows may be multiplied by another weight in the same loops."""
        own, theirs = ((m.says.bits, m.says.block, m.says.depth, m.says.digits, m.outputs) for m in (self, other))
        return own == theirs

    def layouts(self) -> Layouts:
        """The same for all kernels, so that all of them read one array."""
        own: dict[Any, Layout] = {}
        for match_ in (self, *(other for _, other in self.beside)):
            own[match_.codes.var] = PackedCodes.make(match_.says.bits, match_.lanes, match_.side)
            for param in (match_.scales, match_.points):
                if param is not None:
                    widened = param.dtype == "float16" and not match_.halves
                    own[param.var] = PackedScales.make(match_.lanes, match_.side, widened)
        return Layouts.plain(self.group, own)

    def code(self, word: Any, number: Any) -> Any:
        """Code `number` of a word as a float32.

        Args:
            word: of int32, or a vector of such; shifted without its sign, which the mask takes away.
            number: of 32 / bits.
        """
        shift = 8 * (number % 4) + self.says.bits * (number // 4)
        mask = tirx.const((1 << self.says.bits) - 1, "int32")
        return tirx.bitwise_and(tirx.shift_right(word, shift.astype("int32")), mask).astype("float32")

    def decoded(self, args: Arguments, vector: Any, lane: Any, k: Any) -> Any:
        """The weight of an output and a number of the row, which may be one of the last block behind its end.

        Args:
            vector, lane: of outputs, and which of them.
            k: of blocks * block.
        """
        block, rest, each = k // self.says.block, k % self.says.block, 4 * self.parts
        place = (vector // self.side, block, vector % self.side)
        code = self.code(args.tensor(self.codes)(*place, rest // each, lane), rest % each)
        scale = args.tensor(self.scales)(*place, lane).astype("float32")
        if self.points is None:
            return (code - tirx.const(self.says.zero, "float32")) * scale
        point = args.tensor(self.points)(*place, lane).astype("float32")
        return (code - point) * scale if self.points.dtype == "uint8" else code * scale - point


#: A share of vectors is no larger for standing side by side than by this part of the least.
_UNEVEN = 1 / 16


def _side(outputs: int, machine: Machine) -> int:
    """Vectors that stand side by side: as many as hide the latency of a sum, up to 4, if threads then have even
    shares of them."""
    vectors = -(-outputs // machine.lanes)
    busiest = {side: -(-vectors // (side * machine.threads)) * side for side in (4, 3, 2, 1)}
    return next(side for side, share in busiest.items() if share <= (1 + _UNEVEN) * min(busiest.values()))


#: Numbers of a block: of so many, 255 * 32639 each, a sum is below 2**31; and a block's rounding is unrolled.
_LONGEST = 256


def block_match(group: Group, machine: Machine, joined: bool = False) -> BlockMatch | Miss:
    """A group of either operator, or why no kernel takes it.

    Args:
        joined: whether the kernel computes products beside it, and a norm of its rows.
    """
    assert group.call is not None
    norms = [b.value for b in group.bindings if op_name(b.value) == RMS_NORM]
    if not joined and (norms or group.beside):
        return Miss("a product beside it, or a norm of its rows, is computed where rows are few")
    rows = norms[0].args[0] if norms else group.call.args[0]
    norm, match = None, _one_match(group, group.call, rows, machine)
    if norms and not isinstance(match, Miss):
        as_it_is = [next((p for p in group.params if p.var.same_as(arg)), None) for arg in norms[0].args]
        if len(norms) > 1 or as_it_is[0] is None or as_it_is[1] is None:
            return Miss("a norm of rows that are decoded, or by no weight")
        norm = RowNorm(as_it_is[1], float(norms[0].attrs.epsilon))
    beside = []
    for binding in group.beside:
        other = _one_match(group, binding.value, rows, machine)
        if isinstance(match, Miss) or isinstance(other, Miss):
            return match if isinstance(match, Miss) else other
        if not binding.value.args[0].same_as(group.call.args[0]) or not match.goes_with(other):
            return Miss("products of other rows, or of other blocks or numbers of outputs")
        beside.append((binding.var, other))
    return match if isinstance(match, Miss) else replace(match, norm=norm, beside=tuple(beside))


def _one_match(group: Group, call: Call, rows: Any, machine: Machine) -> BlockMatch | Miss:
    """A call alone; `rows` are what it is multiplied by, before a norm."""
    operands = [group.param(operand) for operand in (rows, *call.args[1:])]
    if any(operand is None for operand in operands):
        return Miss("an operand is computed inside the group")
    data, codes, scales, *points = (operand for operand in operands if operand is not None)
    if not all(param.constant for param in (codes, scales, *points)):
        return Miss("the weight is not a constant, so it cannot be packed")
    if group.computed != "float32" or ("float" in data.computed and why_not_float32(group, data)):
        return Miss(f"{data.computed} by blocks: float32 is computed")
    if 0 in (*data.shape, *codes.shape):
        return Miss("an operand is empty")
    if codes.shape[2] % 4:
        return Miss(f"blocks of {codes.shape[2]} bytes are no whole words of 4")
    says = Blocks.of(call)
    if says.block > _LONGEST:
        return Miss(f"blocks of {says.block}: sums of whole numbers would pass 31 bits behind {_LONGEST}")
    halves = "f16c" in machine.features or machine.isa in ("neon", "sve")
    side = _side(codes.shape[0], machine)
    return BlockMatch(group, says, data, codes, scales, next(iter(points), None), machine.lanes, side, halves)


def known_rows(group: Group) -> bool:
    """Whether a group has no extent that is known at run time."""
    axes: Mapping[Any, int] = {None: len(group.shape), **{p: len(p.shape) for p in group.params}}
    return all(isinstance(group.extent(param, axis), int) for param, rank in axes.items() for axis in range(rank))
