"""Integers of one program at several sizes become expressions over its symbols.

    sizes N, S at (8, 512), (3, 37), (2, 53):   (4096, 111, 106)  ->  N * S      (513, 38, 54)  ->  S + 1

What fits is not proven: more probes make a chance agreement less likely, and a value that several expressions fit is
ambiguous until a probe tells them apart.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm_ffi
from tvm import tirx

from ...core.sizes import Sizes, evaluate

Values = tuple[int, ...]
#: Divisors of quotients: strides of convolutions and pools, patches, windows.
_DIVISORS = (2, 3, 4, 5, 6, 7, 8, 16, 32)
#: Largest factor of a known expression in a quotient; 3 is of a resize by 3/2.
_MOST_FACTOR = 4
#: Sizes, drawn once, at which expressions that fit the probes are told apart: how many, and the least of them; all that
#: there are if they are no more than so many.
_SAMPLES, _LEAST, _ALL = 48, 3, 64
#: Sums of two known expressions that are told apart, the simplest first.
_SUMS = 6


@dataclass(frozen=True)
class _Known:
    """A product of known expressions, and its values at the probes."""

    factors: tuple[Any, ...]
    values: Values

    def times(self, other: _Known) -> _Known:
        values = tuple(map(operator.mul, self.values, other.values))
        return _Known((*self.factors, *other.factors), values)

    @property
    def expr(self) -> Any:
        """The product."""
        return functools.reduce(operator.mul, self.factors)

    @property
    def steps(self) -> Values:
        """Differences to the value at the bound."""
        return _steps(self.values)


class _Quotient(NamedTuple):
    """(factor * known + offset) // divisor, for each offset from `low` to `high`."""

    known: _Known
    factor: int
    divisor: int
    low: int
    high: int

    @property
    def offset(self) -> int:
        """0 or that of a ceiling if it fits, else the smallest."""
        fits = (b for b in (0, self.divisor - 1) if self.low <= b <= self.high)
        return next(fits, min(max(self.low, 0), self.high))

    def expr(self, offset: int) -> Any:
        return tirx.floordiv(_affine(self.factor, self.known.expr, offset), tirx.IntImm("int64", self.divisor))


class Solver:
    """Finds the expression over the symbols of which integers are the values.

    Args:
        sizes: the symbols.
        probes: of each symbol its size, by name; the first is the bound. Four or more, no size 1, even and odd ones.

    Attributes:
        samples: sizes at which expressions are told apart.
        doubts: values that were solved by one of several expressions -> the probe that tells them apart.
        guessed: values that are no affine function of one known expression, or of a product.
        leans: whether values were solved by an affine function of a quotient, minimum or the like: what else has its
            values at the probes is not looked for.
    """

    def __init__(self, sizes: Sizes, probes: Sequence[Mapping[str, int]]) -> None:
        self.sizes, self.probes = sizes, tuple(dict(probe) for probe in probes)
        names = {symbol.name for symbol in sizes.symbols}
        for probe in self.probes:
            if probe.keys() != names:
                raise ValueError(f"a probe has sizes of {sorted(probe)}; the symbols are {sorted(names)}")
        self._base: dict[Values, _Known] = {}
        self._products: dict[Values, list[_Known]] = {}
        self._solved: dict[tuple[Values, tuple[Values, ...]], Any] = {}
        self.samples = tuple(_samples(sizes))
        self.doubts: dict[Values, Mapping[str, int]] = {}
        self.guessed: set[Values] = set()
        self.leans = False
        self._symbols = [_Known((var,), self.at_probes(var)) for var in sizes.vars]
        for symbol in self._symbols:
            if symbol.values in self._base:
                both = f"{self._base[symbol.values].expr} and {symbol.expr}"
                raise ValueError(f"{both} are equal at all probes: {symbol.values}")
            self._enter(symbol)

    def learn(self, expr: Any, values: Sequence[int]) -> None:
        """Take an expression for known, such as the size of a dimension, unless a known one has these values.

        Raises:
            ValueError: these are not its values at the probes.
        """
        known = _Known((expr,), tuple(int(v) for v in values))
        if known.values != self.at_probes(expr):
            raise ValueError(f"{expr} is {self.at_probes(expr)} at the probes, not {known.values}")
        self._enter(known)

    def _enter(self, known: _Known) -> None:
        """Know an expression, its products with the others, and those times a symbol."""
        if not any(known.steps):
            return
        if (same := self._base.get(known.values)) is not None:
            probe = None if tvm_ffi.structural_equal(same.expr, known.expr) else self._apart([same.expr, known.expr])
            if probe is not None:
                self.doubts[known.values] = probe
            return
        self._base[known.values] = known
        self._solved.clear()
        for pair in [other.times(known) for other in self._base.values()]:
            for product in (pair, *(symbol.times(pair) for symbol in self._symbols)):
                self._products.setdefault(_direction(product.steps), []).append(product)

    def at_probes(self, expr: Any) -> Values:
        """The values of an expression at the probes."""
        return tuple(evaluate(expr, probe) for probe in self.probes)

    def solve(self, values: Sequence[int], near: Sequence[Any] = ()) -> Any:
        """The simplest expression with these values at the probes.

        Args:
            values: one a probe.
            near: expressions of which a quotient is more likely one than of others: sizes of a kernel's operands.

        Returns:
            An int64 expression; a number if all values are equal; None if there is none.
        """
        wanted = tuple(int(v) for v in values)
        if len(set(wanted)) == 1:
            return wanted[0]
        close = self._known_of(near)
        key = (wanted, tuple(known.values for known in close))
        if key not in self._solved:
            expr = self._search(wanted, close)
            assert expr is None or self.at_probes(expr) == wanted
            self._solved[key] = expr
        return self._solved[key]

    def _apart(self, exprs: Sequence[Any]) -> Mapping[str, int] | None:
        """The sample at which expressions differ most; None if they do at none."""
        most, size = max(((len({evaluate(e, at) for e in exprs}), i) for i, at in enumerate(self.samples)))
        return self.samples[size] if most > 1 else None

    def _known_of(self, near: Sequence[Any]) -> tuple[_Known, ...]:
        return tuple(_Known((e,), self.at_probes(e)) for e in near if not isinstance(e, int | tirx.IntImm))

    def _search(self, wanted: Values, close: Sequence[_Known]) -> Any:
        expr = self._affine(wanted)
        if expr is not None:
            return expr
        fits = self._fits(wanted, close)
        if not fits:
            return None
        self.guessed.add(wanted)
        probe = self._apart(fits)
        if probe is not None:
            self.doubts[wanted] = probe
        return fits[0]

    def _fits(self, wanted: Values, close: Sequence[_Known]) -> list[Any]:
        """Sums of two known expressions (six at most), quotients, and clamps of these values, the simplest first;
        roundings where there is nothing else."""
        quotients = list(self._quotients(wanted, close))
        first = [quotient.expr(quotient.offset) for quotient in quotients[:1]]
        rest = [q.expr(offset) for q in quotients for offset in range(q.low, q.high + 1)]
        fits = [*itertools.islice(self._sums(wanted), _SUMS), *first, *rest, *self._clamped(wanted)]
        return fits or list(self._rounded(wanted))

    def _affine(self, wanted: Values) -> Any:
        """The simplest affine expression of a known one, or else of a product; None if there is none."""
        for group in (self._base.values(), self._products.get(_direction(_steps(wanted)), ())):
            fits = [fit for known in group if (fit := _fit(known, wanted))]
            if fits:
                _, factor, offset, known = min(fits, key=lambda fit: fit[0])
                self.leans = self.leans or any(map(_has_steps, known.factors))
                return _affine(factor, known.expr, offset)
        return None

    def _sums(self, wanted: Values) -> Iterator[Any]:
        """Affine expressions of two known ones, the simplest first."""
        pairs = itertools.combinations(self._addends(), 2)
        sums = [(*total, pair) for pair in pairs if (total := _fit_sum(*pair, wanted))]
        for _, factors, offset, (first, second) in sorted(sums, key=lambda total: total[0]):
            yield _affine(1, _affine(factors[0], first.expr, 0) + _affine(factors[1], second.expr, 0), offset)

    def _addends(self) -> Iterable[_Known]:
        """What is summed: known expressions, and products of two symbols; the first of those affine in each other."""
        pairs = itertools.combinations_with_replacement(self._symbols, 2)
        addends: dict[Values, _Known] = {}
        for known in (*self._base.values(), *(a.times(b) for a, b in pairs)):
            addends.setdefault(_direction(known.steps), known)
        return addends.values()

    def _quotients(self, wanted: Values, close: Sequence[_Known]) -> Iterator[_Quotient]:
        """The quotients that fit: of `close`, or of others; the smallest divisor and factor first."""
        for group in (close, self._base.values()):
            fits = [
                quotient
                for divisor, factor in itertools.product(_DIVISORS, range(1, _MOST_FACTOR + 1))
                for known in group
                if math.gcd(factor, divisor) == 1 and (quotient := _quotient(known, factor, divisor, wanted))
            ]
            if fits:
                yield from sorted(fits, key=lambda q: (q.divisor, q.factor, abs(q.offset)))
                return

    def _clamped(self, wanted: Values) -> Iterator[Any]:
        """Minima and maxima of a number and of a known expression, or of what it is more or less; nearest first."""
        fits: list[tuple[int, Any]] = []
        for known in self._base.values():
            for pick, make, limit in ((min, tirx.min, max(wanted)), (max, tirx.max, min(wanted))):
                offset = next(w - v for v, w in zip(known.values, wanted, strict=True) if w != limit)
                if tuple(pick(v + offset, limit) for v in known.values) == wanted:
                    fits.append((abs(offset), make(_affine(1, known.expr, offset), tirx.IntImm("int64", limit))))
        yield from (expr for _, expr in sorted(fits, key=lambda fit: fit[0]))

    def _rounded(self, wanted: Values) -> Iterator[Any]:
        """Affine expressions of a known one rounded up or down to a multiple, and of what that adds or leaves."""
        for divisor, known in itertools.product(_DIVISORS, self._base.values()):
            number = tirx.IntImm("int64", divisor)
            down = tirx.floordiv(known.expr, number) * number
            up = tirx.floordiv(known.expr + (number - 1), number) * number
            for expr in (down, up, known.expr - down, up - known.expr):
                rounded = _Known((expr,), self.at_probes(expr))
                fit = _fit(rounded, wanted) if any(rounded.steps) else None
                if fit:
                    yield _affine(fit[1], expr, fit[2])


def _samples(sizes: Sizes) -> Iterable[Mapping[str, int]]:
    """Sizes at which a model can be lowered beside others; the same each time; all if they are few."""
    draw, ends = random.Random(0), {}
    for symbol in sizes.symbols:
        low = -(-max(symbol.low, _LEAST) // symbol.multiple)
        ends[symbol.name] = low, max(symbol.high // symbol.multiple, low), symbol.multiple
    if math.prod(high - low + 1 for low, high, _ in ends.values()) <= _ALL:
        rows = itertools.product(*(range(low, high + 1) for low, high, _ in ends.values()))
        yield from ({n: size * ends[n][2] for n, size in zip(ends, row, strict=True)} for row in rows)
        return
    yield {name: low * step for name, (low, _, step) in ends.items()}
    for _ in range(_SAMPLES):
        yield {name: draw.randint(low, high) * step for name, (low, high, step) in ends.items()}


def _has_steps(expr: Any) -> bool:
    """Whether an expression is no polynomial."""
    steps: list[Any] = []
    tvm_ffi.structural_walk(expr, ((tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max, tirx.Select), steps.append))
    return bool(steps)


def _steps(values: Values) -> Values:
    return tuple(v - values[0] for v in values)


def _direction(steps: Values) -> Values:
    """Steps without a common factor, the first that is not 0 being positive."""
    divisor = math.gcd(*steps)
    if divisor == 0:
        return steps
    sign = next(1 if s > 0 else -1 for s in steps if s)
    return tuple(sign * s // divisor for s in steps)


def _fit(known: _Known, wanted: Values) -> tuple[int, int, int, _Known] | None:
    """Its weight, the factor, the offset and the expression, if wanted = factor * known + offset."""
    steps, known_steps = _steps(wanted), known.steps
    place = next(i for i, step in enumerate(known_steps) if step)
    factor, rest = divmod(steps[place], known_steps[place])
    if rest or factor == 0 or any(w != factor * k for w, k in zip(steps, known_steps, strict=True)):
        return None
    offset = wanted[0] - factor * known.values[0]
    return abs(factor) + abs(offset), factor, offset, known


def _fit_sum(first: _Known, second: _Known, wanted: Values) -> tuple[int, tuple[int, int], int] | None:
    """The weight, both factors and the offset, if wanted = f * first + g * second + offset."""
    rows = list(zip(first.steps, second.steps, _steps(wanted), strict=True))[1:]
    for (a, b, v), (c, d, w) in itertools.combinations(rows, 2):
        if determinant := a * d - b * c:
            f, f_rest = divmod(v * d - b * w, determinant)
            g, g_rest = divmod(a * w - v * c, determinant)
            if f_rest or g_rest or not f or not g or any(f * x + g * y != z for x, y, z in rows):
                return None
            offset = wanted[0] - f * first.values[0] - g * second.values[0]
            return abs(f) + abs(g) + abs(offset), (f, g), offset
    return None


def _quotient(known: _Known, factor: int, divisor: int, wanted: Values) -> _Quotient | None:
    """The quotients of a known expression that fit."""
    lows = [divisor * w - factor * k for w, k in zip(wanted, known.values, strict=True)]
    low, high = max(lows), min(lows) + divisor - 1
    return _Quotient(known, factor, divisor, low, high) if low <= high else None


def _affine(factor: int, expr: Any, offset: int) -> Any:
    """factor * expr + offset, without what does nothing."""
    product = expr if factor == 1 else expr * tirx.IntImm("int64", factor)
    if offset == 0:
        return product
    number = tirx.IntImm("int64", abs(offset))
    return product + number if offset > 0 else product - number
