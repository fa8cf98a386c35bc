"""How many operations an operator call states: two a step of a sum of products, one an element of anything else."""

import math
from collections.abc import Callable, Sequence
from typing import Any

FlopCount = Callable[[Any, int, Sequence[Sequence[int]]], int]
"""(call, elements of the result, shape of each operand) -> operations."""


def nothing(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """None: values are only moved."""
    return 0


def elements(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """One an element, of the largest tensor."""
    return max([result, *map(math.prod, operands)])


def convolution(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """A multiplication and an addition of each result for each weight of its output channel."""
    return 2 * result * math.prod(operands[1][1:])


def transposed(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """The same of each input element for each weight of its channel."""
    return 2 * math.prod(operands[0]) * math.prod(operands[1][1:])


def matmul(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """The same of each result for each element of its row."""
    return 2 * result * operands[0][-1]


def attention(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """Two products of matrices for each head; a mask is not counted."""
    queries, keys, values = operands[:3]  # (batch, sequence, heads, size)
    return 2 * math.prod(queries[:3]) * keys[1] * (queries[3] + values[3])


def cached_attention(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """:func:`attention` over all rows that a cache has room for."""
    keys, values = operands[1:3]  # (batch, heads, rows, size), or (pages, rows of one, heads, size)
    roles = [str(role) for role in call.attrs["operands"]]
    rows = keys[1] * operands[3 + roles.index("table")][1] if "table" in roles else keys[2]
    return 2 * result // values[3] * rows * (keys[3] + values[3])


def recurrence(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """A multiplication and an addition of each gate of each step for each unit of the state before."""
    return 2 * math.prod(operands[0]) * operands[1][-1]


def window(call: Any, result: int, operands: Sequence[Sequence[int]]) -> int:
    """One of each result for each element of its window."""
    return result * math.prod(int(size) for size in call.attrs.pool_size)
