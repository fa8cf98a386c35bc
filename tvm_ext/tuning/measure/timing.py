"""Timing a kernel in a process that has the machine to itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: A first time of so many times the best known one is a clear loser: noise does not make it a winner.
DISCARD = 1.5


@dataclass(frozen=True)
class Repeats:
    """How often a kernel is timed: until one of both is reached.

    Attributes:
        count: calls, each a sample.
        seconds: of all of them together.
        warm: seconds of calls before them; at least one call. A pool of threads that begins to run has them on one
            core until Linux's scheduler spreads them, milliseconds later: kernels took 1.7 times as long until then.
    """

    count: int = 10
    seconds: float = 0.02
    warm: float = 0.0


#: Enough for a median, and short beside a build.
DEFAULT_REPEATS = Repeats(warm=0.02)


def timed(
    function: Callable[..., Any], arguments: Sequence[Sequence[Any]], best: float, repeats: Repeats
) -> tuple[tuple[float, ...], bool]:
    """Seconds of each repeat, after calls that warm up; and whether it was given up as a clear loser.

    Args:
        arguments: of one call after the other, from the beginning again if there are fewer than calls.
        best: seconds of the best candidate so far.
    """
    following = itertools.cycle(arguments)
    warm = time.perf_counter() + repeats.warm
    function(*next(following))
    while time.perf_counter() < warm:
        function(*next(following))
    costs: list[float] = []
    while len(costs) < repeats.count and sum(costs) < repeats.seconds:
        given = next(following)
        start = time.perf_counter()
        function(*given)
        costs.append(time.perf_counter() - start)
        if len(costs) == 1 and costs[0] > DISCARD * best:
            return tuple(costs), True
    return tuple(costs), False
