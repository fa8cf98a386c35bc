"""Prefetches of the cache lines of rows of a cache."""

from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ..blocked.prefetch import LINE_BYTES, prefetch
from ..steps.arguments import Arguments
from ..steps.nests import unrolled, where
from .tokens import CacheMatch, Tokens


class CacheLines:
    """The cache lines of keys and values, in the function that is being built.

    Args:
        match: the call.
        args: arguments of the function.
        tokens: of the call, which know where a row lies.
    """

    def __init__(self, match: CacheMatch, args: Arguments, tokens: Tokens) -> None:
        self._match, self._args, self._tokens = match, args, tokens

    def of(self, role: str) -> int:
        """Lines of a row."""
        param = self._match.param(role)
        return -(-param.shape[3] * tvm.DataType(param.dtype).bits // (8 * LINE_BYTES))

    def ask(self, role: str, place: tuple[Any, Any, Any], start: Any, count: int, condition: Any) -> None:
        """Prefetch lines, which are numbered from a row on, if a condition holds or is None.

        Args:
            place: sequence, head of keys and number of the row.
            start, count: the first line and how many.
        """
        param, each = self._match.param(role), self.of(role)
        if not self._args.layout(param).is_plain:
            return
        with where([] if condition is None else [condition]), unrolled(count, 1) as (i, _):
            (b, g, row), number = place, start + i
            key, column = row + number // each, number % each
            if self._match.says.paged:  # no page behind the last one is looked up
                key = tirx.min(key, self._match.capacity - 1)
            index = [*self._tokens.place(b, g, key), column * (param.shape[3] // each)]
            T.evaluate(prefetch(self._args.buffer(param), index))
