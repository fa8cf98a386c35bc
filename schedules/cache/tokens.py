"""The new tokens of a call with a cache: where their rows stand, and rows turned by their positions.

    y1, y2 = x1 cos - x2 sin, x2 cos + x1 sin        pairs of a row, by the angles of a position

Su et al., "RoFormer" (2021).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.graph.relax_graph import scalar_of
from tvm_ext.core.recipe import Group, Match, Miss, Param
from tvm_ext.ops.kv_cache import Append, Attention
from tvm_ext.runtime.memory.cache_lengths import REFUSE_LENGTH, REFUSE_PAGE, REFUSE_POSITION

from ..steps.arguments import Arguments
from ..steps.nests import vectors_of


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

    @property
    def cache(self) -> Param:
        """The cache that is written or, of the two that are read, that of keys."""
        return self.param(self.says.tensors[1 if isinstance(self.says, Attention) else 0])

    @property
    def groups(self) -> int:
        """Heads of keys."""
        return self.cache.shape[2 if self.says.paged else 1]

    @property
    def capacity(self) -> int:
        """Rows that a sequence may have."""
        shape = self.cache.shape
        return shape[1] * self.param("table").shape[1] if self.says.paged else shape[2]

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
    fixed = (0, 1) if says.paged else (1,)
    known_axes += [(role, axis) for role in ("past", "keys", "values") if role in says.tensors for axis in fixed]
    if says.paged:
        known_axes += [("table", 0), ("table", 1)]
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
        self._pages, self._page, self._capacity = *match.cache.shape[:2], match.capacity

    def read(self, role: str, *index: Any) -> Any:
        """An element of an operand."""
        operand = self._match.operands[role]
        if not isinstance(operand, Param):
            return tirx.const(int(operand), "int32")
        return self._args.reader(operand)(*self._args.layout(operand).index(list(index)))

    def place(self, sequence: Any, group: Any, row: Any) -> list[Any]:
        """Where a row of a head of keys lies in the cache, within it whatever the table says."""
        if not self._match.says.paged:
            return [sequence, group, row]
        page = self._read_page(self.sequence(sequence), row // self._page)
        return [tirx.max(tirx.min(page, self._pages - 1), 0), row % self._page, group]

    def sequence(self, token: Any) -> Any:
        """The sequence of a row of the batch, int32; of a cache in pages one of its table."""
        if not self._match.says.paged:
            return token
        last = self._match.param("table").shape[0] - 1
        return tirx.max(tirx.min(self.read("sequences", token).astype("int32"), last), 0)

    def _read_page(self, sequence: Any, number: Any) -> Any:
        return self.read("table", sequence, number).astype("int32")

    def stated(self, sequence: Any) -> Any:
        """The row of its first token, int64, as the lengths have it."""
        before = self._read_long("lengths", sequence) + (1 - _long(self.steps))
        return tirx.Select(self._prompt, _long(0), before) if "total" in self._match.operands else before

    def first(self, sequence: Any) -> Any:
        """:meth:`stated`, as a variable, int32, within the cache whatever the lengths are."""
        last = _long(self._capacity) - _long(self.steps)
        return T.bind(tirx.max(tirx.min(self.stated(sequence), last), _long(0)).astype("int32"))

    def last(self, sequence: Any) -> Any:
        """The row behind the last one that counts, int32, within the cache whatever the lengths are."""
        return tirx.min(self._read_long("lengths", sequence) + 1, _long(self._capacity)).astype("int32")

    def check(self) -> None:
        """Have the runtime raise InputError where rows of a token are not within the cache, or have no cosines."""
        says = self._match.says
        assert isinstance(says, Append)
        room, positions = self._capacity, "positions" in self._match.operands
        if says.turned and not positions:
            room = min(room, says.turned)
        with T.serial(self.batch) as b:
            start = T.bind(self.stated(b))
            with T.If(tirx.any(start < 0, start > _long(room) - _long(self.steps))), T.Then():
                T.evaluate(T.call_packed(REFUSE_LENGTH, says.source, self.sequence(b), start, self.steps, room))
            if says.paged:
                self._check_pages(b, start)
            if positions:
                with T.serial(self.steps) as s:
                    at = T.bind(self._stated_position(b, s))
                    with T.If(tirx.any(at < 0, at >= says.turned)), T.Then():
                        T.evaluate(T.call_packed(REFUSE_POSITION, says.position_source, b, at, says.turned))

    def _check_pages(self, token: Any, start: Any) -> None:
        """Have the runtime raise InputError where a page up to that of a new row is none of the cache."""
        says = self._match.says
        assert isinstance(says, Append)
        sequence = T.bind(self.sequence(token))
        with T.serial((start // self._page + 1).astype("int32")) as number:
            page = T.bind(self._read_page(sequence, number))
            with T.If(tirx.any(page < 0, page >= self._pages)), T.Then():
                T.evaluate(T.call_packed(REFUSE_PAGE, says.position_source, sequence, number, page, self._pages))

    @property
    def _prompt(self) -> Any:
        """Whether the tokens are those of a first prompt."""
        return self._read_long("total", 0) == _long(self.steps)

    def _read_long(self, role: str, *index: Any) -> Any:
        return self.read(role, *index).astype("int64")

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
        position = self._stated_position(sequence, token) if "positions" in self._match.operands else _long(row)
        last = _long(self._match.param("cos").shape[0] - 1)
        return T.bind(tirx.max(tirx.min(position, last), _long(0)).astype("int32"))

    def _stated_position(self, sequence: Any, token: Any) -> Any:
        """The position of a token, int64; of a first prompt onnxruntime reads the first position only."""
        position = self._read_long("positions", sequence, token)
        if "total" not in self._match.operands:
            return position
        return tirx.Select(self._prompt, self._read_long("positions", 0, 0) + _long(token), position)


def computed(value: Any) -> Any:
    """A number (int32) that is computed where this stands: a variable with what memory holds.

    Of a variable that reads none, TVM puts the expression wherever its name is, and that of its operands into it:
    what follows from a size of the call in a few steps is then a page of text in each index.
    """
    if isinstance(value, int | tirx.IntImm | tirx.Var):
        return value
    register = T.alloc_buffer((1,), "int32", scope="local")
    T.buffer_store(register, value, [0])
    return T.bind(register[0])


def _long(value: Any) -> Any:
    return tirx.const(value, "int64") if isinstance(value, int) else value.astype("int64")
