"""Sizes of symbolic dimensions at which a model is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import OptionError
from ..runtime.sizes.symbols import Symbol

if TYPE_CHECKING:
    from ..runtime.model import CompiledModel


def checked_sizes(
    compiled: CompiledModel, sizes: Sequence[Mapping[str, int]] | None, seed: int
) -> list[Mapping[str, int]]:
    """The sizes at which a model of symbolic dimensions is checked.

    Those of `sizes`; else the ends of all bounds, and two drawn by `seed`, a prime one among them; none of a model of
    numbers, or of a batch of rows.

    Raises:
        OptionError: a size is missing, unknown, or out of its bounds.
    """
    symbols = compiled.symbols
    if sizes is None:
        return _drawn(symbols, seed) if symbols else []
    names = [symbol.name for symbol in symbols]
    for one in sizes:
        if not isinstance(one, Mapping) or set(one) != set(names):
            fix = "for example sizes=[{" + ", ".join(f"{name!r}: 1" for name in names) + "}]"
            raise OptionError(f"sizes={one!r}: the size of each of {names} is needed", fix=fix if names else "")
        for symbol in symbols:
            if wrong := symbol.why_not(one[symbol.name]):
                raise OptionError(f"sizes={dict(one)}: {wrong}")
    return list(sizes)


def _drawn(symbols: Sequence[Symbol], seed: int) -> list[Mapping[str, int]]:
    rng = np.random.default_rng(seed)

    def some(symbol: Symbol, prime: bool) -> int:
        sizes = range(-(-symbol.low // symbol.multiple) * symbol.multiple, symbol.high + 1, symbol.multiple)
        primes = [n for n in sizes if n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))]
        return int(rng.choice(primes if prime and primes else list(sizes)))

    ends = [{s.name: -(-s.low // s.multiple) * s.multiple for s in symbols},
            {s.name: s.high // s.multiple * s.multiple for s in symbols}]  # fmt: skip
    return [*ends, *({s.name: some(s, prime) for s in symbols} for prime in (True, False))]
