"""Timing a kernel in a process that has the machine to itself."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Seconds that a kernel runs before it is timed. Threads that wake up begin on the core of the one that woke them: the
#: scheduler needs some milliseconds to move them, and until then a kernel of two threads takes twice as long.
WARM_UP = 0.01
#: A first time of so many times the best known one is a clear loser: noise does not make it a winner.
DISCARD = 1.5


@dataclass(frozen=True)
class Repeats:
    """How often a kernel is timed: until one of both is reached.

    Attributes:
        count: calls, each a sample.
        seconds: of all of them together.
    """

    count: int = 10
    seconds: float = 0.02


#: Enough for a median, and short beside a build.
DEFAULT_REPEATS = Repeats()


def timed(
    function: Callable[..., Any], arguments: Sequence[Sequence[Any]], best: float, repeats: Repeats
) -> tuple[tuple[float, ...], bool]:
    """Seconds of each repeat, after calls that warm up; and whether it was given up as a clear loser.

    Args:
        arguments: of one call after the other, from the beginning again if there are fewer than calls.
        best: seconds of the best candidate so far.
    """
    following = itertools.cycle(arguments)
    first, warm = next(following), time.perf_counter() + WARM_UP
    function(*first)
    while time.perf_counter() < warm:  # the others' weights stay cold
        function(*first)
    costs: list[float] = []
    while len(costs) < repeats.count and sum(costs) < repeats.seconds:
        next_arguments = next(following)
        start = time.perf_counter()
        function(*next_arguments)
        costs.append(time.perf_counter() - start)
        if len(costs) == 1 and costs[0] > DISCARD * best:
            return tuple(costs), True
    return tuple(costs), False


def lower_quartile(costs: Sequence[float]) -> float:
    """Of a sample of seconds: what it takes undisturbed, if no more than two thirds of the calls were disturbed."""
    return sorted(costs)[len(costs) // 4]
