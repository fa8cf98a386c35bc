"""Attention over a cache as a recipe (:mod:`.attention`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, Op
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import seconds, thread_counts
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.group import SUMS
from tvm_ext.core.recipe import Config, Group, Layouts, Machine, Miss, Recipe, Sharing
from tvm_ext.ops.kv_cache import APPEND, ATTENTION, Attention

from .append import CacheAppend
from .attention import CachedAttentionKernel
from .tokens import CacheMatch, taken

#: Rows of a unit that read a key together, at most; keys of a block.
_ROWS, _BLOCK = 16, 64
#: Vectors of a value that are summed together, at most; half of them for one token, for whose few rows LLVM keeps
#: constants of the exponentials in registers, and sums on the stack.
_COLUMNS = 4
#: Vector instructions of a vector of scores: an exponential, a mask, maximum and sum.
_SCORE = 30


class CachedAttention(Recipe[CacheMatch]):
    """Attention over a cache of keys and values."""

    name = "cached_attention"
    anchors = frozenset({ATTENTION})
    any_size = True

    def match(self, group: Group, machine: Machine) -> CacheMatch | Miss:
        assert group.call is not None
        return taken(group, Attention.of(group.call))

    def space(self, match: CacheMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Tokens of a unit and the register tile follow from shapes and machine; threads are the choice."""
        lanes, wide = match.lanes(machine.lanes), machine.registers >= 32
        shared = match.group.shape[2] // match.groups
        vectors = match.param("values").shape[3] // lanes
        most = _COLUMNS if wide and match.group.shape[1] > 1 else _COLUMNS // 2
        columns = next(c for c in range(most, 0, -1) if vectors % c == 0)
        fitting = [r for r in range(1, 9) if r * columns + columns + 1 <= machine.registers - 4]
        rows, scored = (max(r for r in some if shared % r == 0) for some in (fitting, range(1, 7 if wide else 4)))
        return {
            "lanes": [lanes],
            "queries": [max(1, min(match.group.shape[1], _ROWS // shared))],
            "block": [max(_BLOCK, lanes)],
            "scored": [scored if scored > 1 else 3],
            "rows": [rows if rows > 1 else min(4, fitting[-1])],
            "columns": [columns],
            "threads": thread_counts(self._cycles(match, machine), machine),
        }

    def cost(self, match: CacheMatch, config: Config, machine: Machine) -> float:
        return seconds(self._cycles(match, machine) / config["threads"], [], machine, config["threads"])

    def _cycles(self, match: CacheMatch, machine: Machine) -> float:
        batch, steps, heads, width = match.group.shape
        keys, lanes = match.capacity, match.lanes(machine.lanes)
        products = (match.size + width) / lanes / machine.fma_per_cycle + (3 * lanes + _SCORE) / lanes
        return float(batch * steps * heads * keys * products)

    def sharing(self, match: CacheMatch, config: Config, machine: Machine) -> Sharing:
        """Heads of keys of all tokens; where they are few, their keys."""
        return Sharing(config["threads"], config["threads"], 1)

    def compute(self, match: CacheMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        return CachedAttentionKernel(match, config, layouts).function()

    def schedule(self, sch: Schedule, match: CacheMatch, config: Config, machine: Machine) -> None:
        """The loop over blocks of keys carries its state, which no schedule primitive moves: loops stand already."""


def legalized(builder: relax.BlockBuilder, call: Call) -> relax.Expr:
    """The operators as kernels of one thread for any CPU, where no recipe takes them.

    Raises:
        UnsupportedError: of what one is called with; names the reason.
    """
    recipe: Recipe[CacheMatch] = CacheAppend() if call.op.name == APPEND else CachedAttention()
    machine = Machine.detect("generic", 1)
    match = recipe.match(Group.of_call(call), machine)
    if isinstance(match, Miss):
        raise UnsupportedError(f"{call.op.name}: {match.reason}", fix="compute it in float32")
    kernel = recipe.compute(match, recipe.default(match, machine), Layouts.plain(match.group))
    sums = match.capacity * match.size if call.op.name == ATTENTION else 1
    return relax.call_tir(builder.add_func(kernel.with_attr(SUMS, sums), recipe.name), list(call.args), call.ty)


for _name in (APPEND, ATTENTION):
    Op.get(_name).set_attr("FLegalize", legalized)
