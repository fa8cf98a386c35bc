"""Sizes of symbolic dimensions at which a model is run, or checked."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..core.errors import OptionError
from ..runtime.model import CompiledModel
from ..runtime.sizes.symbols import Symbol, checked_sizes, dimensions_of
from ..runtime.spec import Program


def sizes_to_check(
    compiled: CompiledModel, sizes: Sequence[Mapping[str, int]] | None, seed: int
) -> list[Mapping[str, int]]:
    """The sizes at which a model of symbolic dimensions is checked.

    Those of `sizes`; else the ends of all bounds, two drawn by `seed`, a prime one among them, and one of each program
    in which sizes are fixed, but where no output has elements; none of a model of numbers, or of a batch of rows.

    Raises:
        OptionError: a size is missing, unknown, or out of its bounds.
    """
    if sizes is None:
        return _drawn(compiled, seed) if compiled.symbols else []
    if isinstance(sizes, str | bytes | Mapping) or not isinstance(sizes, Sequence):
        raise OptionError(f"sizes={sizes!r:.100}: a list is needed", fix="sizes=[{'N': 3, 'S': 37}]")
    dimensions = dimensions_of(compiled.inputs, compiled.symbols)
    return [checked_sizes(dimensions, at) for at in sizes]


def sizes_of(compiled: CompiledModel, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """Sizes of a program's symbolic dimensions to run it once at; none of a program of numbers.

    Args:
        compiled: the program.
        sizes: of each dimension; None takes the largest that they can have, or that there is a program for.

    Raises:
        OptionError: a size is missing, unknown, no whole number, or out of its bounds.
    """
    dimensions = dimensions_of(compiled.inputs, compiled.symbols)
    if sizes is not None:
        return checked_sizes(dimensions, sizes)
    return {dimension.name: dimension.most if compiled.symbols else max(compiled.batches) for dimension in dimensions}


def _drawn(compiled: CompiledModel, seed: int) -> list[Mapping[str, int]]:
    rng = np.random.default_rng(seed)

    def some(symbol: Symbol, prime: bool) -> int:
        sizes = range(symbol.least, symbol.high + 1, symbol.multiple)
        primes = [n for n in sizes if n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))]
        return int(rng.choice(primes if prime and primes else list(sizes)))

    def something(program: Program) -> bool:
        return any(0 not in output.sized(program.planned).sizes for output in compiled.metadata.outputs)

    general, *exact = compiled.metadata.programs
    ends = [{s.name: s.least for s in general.symbols}, {s.name: s.most for s in general.symbols}]
    drawn = [*ends, *({s.name: some(s, prime) for s in general.symbols} for prime in (True, False))]
    drawn += [{**dict(p.fixed), **{s.name: some(s, False) for s in p.symbols}} for p in exact if something(p)]
    return [{symbol.name: sizes[symbol.name] for symbol in compiled.symbols} for sizes in drawn]
