"""New rows of keys or values, turned by their positions, written into a cache.

    present = past; for b, s, g: present[b, g, first(b) + s] = turned(new[b, s, g])

of a cache in pages at [table[sequence, row // R], row % R, g].

All rows and positions are checked before anything is written: what is refused changes no state.
The copy is a loop of its own, which the pass `update-states` takes out where the result lies in the memory of `past`:
then as many bytes are written as are new, whatever the cache holds.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Config, Group, Layouts, Machine, Miss, Recipe, VectorWork
from tvm_ext.ops.kv_cache import APPEND, Append

from ..steps.arguments import building
from .tokens import CacheMatch, Tokens, taken


class CacheAppend(Recipe[CacheMatch]):
    """Rows behind those of a cache."""

    name = "cache_append"
    anchors = frozenset({APPEND})
    any_size = True

    def match(self, group: Group, machine: Machine) -> CacheMatch | Miss:
        assert group.call is not None
        return taken(group, Append.of(group.call))

    def work(self, match: CacheMatch, machine: Machine) -> VectorWork:
        batch, steps, _, size = match.param("new").shape
        return VectorWork(4.0 * batch * steps * match.groups * size, rows=1)

    def space(self, match: CacheMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Threads share the copy, where there is one."""
        return {"threads": [machine.threads], "lanes": [match.lanes(machine.lanes)]}

    def compute(self, match: CacheMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        *lead, size = match.group.shape
        lanes, rows = config["lanes"], math.prod(lead)
        threads = next(t for t in range(config["threads"], 0, -1) if rows % t == 0)
        with building(match.group, layouts) as (builder, args, out), T.sblock("root"):
            tokens = Tokens(match, args, lanes)
            tokens.check()

            def store(index: list[Any], value: Any) -> None:
                T.buffer_store(out, args.epilogue(index, value), index)

            with T.parallel(threads) if threads > 1 else T.serial(1) as thread, T.serial(rows // threads) as i:
                row = thread * (rows // threads) + i
                at = [row // (lead[1] * lead[2]), row // lead[2] % lead[1], row % lead[2]]
                with T.serial(size // lanes) as vector, T.vectorized(lanes) as lane:
                    index = [*at, vector * lanes + lane]
                    store(index, tokens.read("past", *index))
            with T.serial(tokens.batch) as b:
                first = tokens.first(b)
                with T.serial(tokens.steps) as s, T.serial(match.groups) as g:
                    place = [T.bind(_int32(axis)) for axis in tokens.place(b, g, first + s)]
                    tokens.turn(
                        (b, s, first + s),
                        lambda d: tokens.read("new", b, s, match.says.first + g, d),
                        lambda d, value: store([*place, d], value),
                    )
        return builder.get()

    def schedule(self, sch: Schedule, match: CacheMatch, config: Config, machine: Machine) -> None:
        """Rows stand where the lengths say, which no schedule primitive sees: loops stand already."""


def _int32(number: Any) -> Any:
    return tirx.const(number, "int32") if isinstance(number, int) else number
