"""The new tokens of a call with a cache: where their rows stand, and rows turned by their positions.

    y1, y2 = x1 cos - x2 sin, x2 cos + x1 sin        pairs of a row, by the angles of a position

Su et al., "RoFormer" (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.graph.relax_graph import scalar_of
from tvm_ext.core.group import Group, Param
from tvm_ext.core.recipe import Match, Miss
from tvm_ext.ops.kv_cache import Append, Attention

from ..steps.arguments import Arguments
from ..steps.attention_kernel import vectors_of


@dataclass(frozen=True)
class CacheMatch(Match):
    """A call with a cache.

    Attributes:
        says: what the call says.
        operands: by what they are; `total` may be a number.
    """

    says: Append | Attention
    operands: Mapping[str, Param | float]

    def param(self, role: str) -> Param:
        """An operand that is a tensor."""
        operand = self.operands[role]
        assert isinstance(operand, Param)
        return operand

    @property
    def size(self) -> int:
        """Elements of a row of the cache."""
        return self.param(self.says.tensors[0]).shape[3]

    def lanes(self, most: int) -> int:
        """Lanes of vectors that divide every row."""
        sizes = [self.param(role).shape[3] for role in self.says.tensors]
        while any(size % most for size in sizes):
            most //= 2
        return most


def taken(group: Group, says: Append | Attention) -> CacheMatch | Miss:
    """A group as a call with a cache, or why it is none that a kernel computes."""
    assert group.call is not None
    operands: dict[str, Param | float] = {}
    for number, role in enumerate(says.roles):
        known = group.operand(number)
        operand = scalar_of(group.call.args[number]) if known is None and role == "total" else known
        if operand is None:
            return Miss(f"operand {role!r} is computed inside the group")
        operands[role] = operand
    floats = {*says.tensors, "cos", "sin", "sink"} & operands.keys()
    kinds = {p.computed for role, p in operands.items() if role in floats and isinstance(p, Param)} | {group.computed}
    if kinds != {"float32"}:
        return Miss(f"types {', '.join(sorted(kinds))}: float32 is computed")
    params = [p for p in operands.values() if isinstance(p, Param)]
    if any(0 in p.shape for p in params):
        return Miss("an operand is empty")
    match = CacheMatch(group, says, operands)
    known_axes = [(role, axis) for role in says.tensors for axis in (2, 3)]
    known_axes += [(role, 1) for role in ("past", "keys", "values") if role in says.tensors]
    if not all(isinstance(group.extent(match.param(role), axis), int) for role, axis in known_axes):
        return Miss("the number of heads, or the size or number of rows of the cache is only known at run time")
    return match


class Tokens:
    """The tokens of a call, in the function that is being built.

    Args:
        match: the call.
        args: arguments of the function.
        lanes: of vectors, which divide a row.

    Attributes:
        batch, steps: sequences, and tokens of each: numbers, or expressions.
    """

    def __init__(self, match: CacheMatch, args: Arguments, lanes: int) -> None:
        self._match, self._args, self._lanes = match, args, lanes
        tokens = match.param("new" if isinstance(match.says, Append) else "query")
        self.batch, self.steps = (match.group.extent(tokens, axis) for axis in (0, 1))
        self._capacity = match.param(match.says.tensors[1 if isinstance(match.says, Attention) else 0]).shape[2]

    def read(self, role: str, *index: Any) -> Any:
        """An element of an operand."""
        operand = self._match.operands[role]
        if not isinstance(operand, Param):
            return tirx.const(int(operand), "int32")
        return self._args.reader(operand)(*self._args.layout(operand).index(list(index)))

    def stated(self, sequence: Any) -> Any:
        """The row of its first token, as the lengths have it."""
        before = self.read("lengths", sequence).astype("int32") + (1 - self.steps)
        if "total" not in self._match.operands:
            return before
        return tirx.Select(self.read("total", 0).astype("int32") == self.steps, tirx.const(0, "int32"), before)

    def first(self, sequence: Any) -> Any:
        """:meth:`stated`, as a variable, within the cache whatever the lengths are."""
        return T.bind(tirx.max(tirx.min(self.stated(sequence), self._capacity - self.steps), 0))

    def check(self, sequence: Any) -> None:
        """Have the runtime raise InputError where rows are not within the cache, or have no cosines, if it is to."""
        source = getattr(self._match.says, "source", "")
        if not source:
            return
        start, room = T.bind(self.stated(sequence)), self._capacity
        if "cos" in self._match.operands and "positions" not in self._match.operands:
            room = min(room, self._match.param("cos").shape[0])
        with T.If(tirx.any(start < 0, start > room - self.steps)), T.Then():
            which = [sequence, start, self.steps, room]
            T.evaluate(T.call_packed("tvm_ext.refuse_length", source, *which))

    def turn(self, place: tuple[Any, Any, Any], read: Callable[[Any], Any], write: Callable[[Any, Any], Any]) -> None:
        """Write a row of a token, turned by its position if there are cosines.

        Args:
            place: (sequence, token, row of the cache).
            read: element -> its value.
            write: (element, value) -> None.
        """
        size, turned = self._match.size, 0
        if "cos" in self._match.operands:
            turned = 2 * self._match.param("cos").shape[1]
            self._turn_pairs(self._position(*place), turned // 2, read, write)
        for d in vectors_of(size - turned, self._lanes):
            write(turned + d, read(turned + d))

    def _turn_pairs(self, at: Any, half: int, read: Callable[[Any], Any], write: Callable[[Any, Any], Any]) -> None:
        apart = not self._match.says.interleaved
        for k in vectors_of(half, self._lanes if apart else 1):
            one, other = (k, half + k) if apart else (2 * k, 2 * k + 1)
            cos, sin = (self.read(role, at, k) for role in ("cos", "sin"))
            write(one, read(one) * cos - read(other) * sin)
            write(other, read(other) * cos + read(one) * sin)

    def _position(self, sequence: Any, token: Any, row: Any) -> Any:
        """The row of cosines of a token, one that there is."""
        position = row
        if "positions" in self._match.operands:
            position = self.read("positions", sequence, token).astype("int32")
            if "total" in self._match.operands:  # of a first prompt onnxruntime reads the first position only
                start = self.read("positions", 0, 0).astype("int32")
                prompt = self.read("total", 0).astype("int32") == self.steps
                position = tirx.Select(prompt, start + token, position)
        last = self._match.param("cos").shape[0] - 1
        return T.bind(tirx.max(tirx.min(position, last), 0))
