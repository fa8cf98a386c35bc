"""Threads share the iterations that are needed of a nest of loops.

    parallel (of T) for a in range(A): for b in range(B): ...        of the run-time counts A and B
->  parallel t in range(T):
        for a in range(first // B, ceildiv(end, B)):                 first: t * (A * B) // T; end: that of t + 1
            for b in range(max(first - a * B, 0), min(end - a * B, B)): ...

Each thread does what it does at the bound, in the same order: neighbours of one another. Where loops of constant extent
stand around, and the rest alone divides evenly enough, it is the rest that is shared: then a thread has the rows that
it has in other kernels, whose columns it does all.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ....core.graph.nodes import nodes_of
from .statements import PARALLEL, SERIAL, descend, is_kind, loop_like, named, sequence

#: Annotation of the outermost loop of a nest that threads share: how many they are.
THREADS = "tvm_ext.threads"
#: Annotation of each loop of it over what the threads shared: such a loop, or one that it joined.
SHARED = "tvm_ext.shared"
#: Most that a thread may do beyond its even share, in percent, before the outer loops are shared as well.
_UNEVEN = 10


@dataclass(frozen=True)
class Digit:
    """A loop of a nest.

    Attributes:
        loop: at the bound.
        count: of iterations that are needed, 0 or more; None if all are.
    """

    loop: tirx.For
    count: Any = None

    @property
    def extent(self) -> Any:
        """Its iterations."""
        return self.loop.extent if self.count is None else self.count


def shared(digits: Sequence[Digit], threads: int, inner: Any) -> Any:
    """The loop over threads; each has its share of a nest around `inner`."""
    while len(digits) > 1 and digits[-1].count is None and not _is_work(inner):
        inner = plain(digits[-1].loop, inner)
        digits = digits[:-1]
    return _Shares(digits, threads).loop(inner)


def start_of(total: Any, thread: Any, threads: int) -> Any:
    """The first iteration of a thread, if threads share `total`: shares differ by one at most."""
    return tirx.floordiv(total, threads) * thread + tirx.min(tirx.floormod(total, threads), thread)


def plain(loop: tirx.For, body: Any, **changed: Any) -> tirx.For:
    """A loop that threads do not share; with what is named by arguments of `tirx.For`."""
    annotations = {k: v for k, v in loop.annotations.items() if k not in (THREADS, SHARED)}
    return loop_like(loop, body, annotations=annotations, **changed)


class _Shares:
    """The loops of one thread."""

    def __init__(self, digits: Sequence[Digit], threads: int) -> None:
        self._digits, self._threads = digits, threads
        dtype = digits[0].loop.loop_var.ty.dtype
        self._thread, self._zero = tirx.Var("thread", dtype), tirx.const(0, dtype)
        self._binds: list[Any] = []
        self._lead = next((i for i, digit in enumerate(digits) if digit.count is not None), 0)
        extents = [digit.extent for digit in digits]
        products = [_product(extents[i:]) for i in range(len(extents))]
        self._widths = [self._named("width", tirx.max(product, 1)) for product in products[1:]]
        total = self._named("total", products[0])
        self._all = (self._start(total, 0), self._start(total, 1))
        if self._lead:
            rest = self._named("rest", products[self._lead])
            rounded = tirx.floordiv(rest + (threads - 1), threads) * threads
            self._even = self._named("even", rounded * 100 <= rest * (100 + _UNEVEN))
            self._rest = (self._start(rest, 0), self._start(rest, 1))
            first, end = self._all
            self._all = (tirx.Select(self._even, self._zero, first), tirx.Select(self._even, total, end))

    def _named(self, name: str, value: Any) -> Any:
        if isinstance(value, tirx.IntImm):
            return value
        var, stmts = named(name, value)
        self._binds += stmts
        return var

    def _start(self, total: Any, after: int) -> Any:
        """The first of the iterations of this thread, or of one after it."""
        return self._named("end" if after else "first", start_of(total, self._thread + after, self._threads))

    def loop(self, inner: Any) -> tirx.For:
        """The loop over threads."""
        body = sequence(*self._binds, self._nested(0, *self._all, inner))
        return tirx.For(self._thread, self._zero, self._zero + self._threads, PARALLEL, body)

    def _nested(self, level: int, first: Any, end: Any, inner: Any) -> Any:
        """The loops from a level on, over the iterations from `first` to `end` of those that they have together."""
        digit = self._digits[level].loop
        if level == self._lead and level:
            first, end = (tirx.Select(self._even, a, b) for a, b in zip(self._rest, (first, end), strict=True))
        if level == len(self._digits) - 1:
            return plain(digit, inner, min=first, extent=end - first, kind=SERIAL)
        width, done = self._widths[level], digit.loop_var * self._widths[level]
        begin, outer = named("begin", tirx.floordiv(first, width))
        after, last = named("after", tirx.floordiv(end + width - 1, width))
        low, lower = named("low", tirx.max(first - done, 0))
        high, upper = named("high", tirx.min(end - done, width))
        body = sequence(*lower, *upper, self._nested(level + 1, low, high, inner))
        return sequence(*outer, *last, plain(digit, body, min=begin, extent=after - begin, kind=SERIAL))


def _product(extents: Sequence[Any]) -> Any:
    return functools.reduce(operator.mul, extents)


def _is_work(body: Any) -> bool:
    """Whether an iteration takes long: it has a loop."""
    return any(is_kind(loop, SERIAL) for loop in nodes_of(body, tirx.For))


def veiled(body: Any, bounds: Mapping[Any, int]) -> Any:
    """A body in which LLVM does not see that addresses grow evenly with loops around others, those of run-time extents.

    for i in range(N): f(i)     ->   for a in range(N): i = a & 63; f(i)          of at most 64 iterations

    For each of the many addresses of an unrolled body it would look for the best of all ways to step through them: that
    takes longer than all else about a kernel. Loops inside step through memory as before.

    Args:
        bounds: variable of a loop -> a number that no value of it reaches.
    """

    def visit(stmt: Any) -> Any:
        new = descend(stmt, visit)
        if not is_kind(new, SERIAL) or isinstance(new.extent, tirx.IntImm) or new.loop_var not in bounds:
            return new
        bits, var = (1 << (bounds[new.loop_var] - 1).bit_length()) - 1, new.loop_var
        if not bits or not _is_work(new.body):
            return new
        count = tirx.Var(var.name, var.ty.dtype)
        value = tirx.Bind(var, tirx.bitwise_and(count, tirx.const(bits, var.ty.dtype)))
        return loop_like(new, sequence(value, new.body), loop_var=count)

    return visit(body)
