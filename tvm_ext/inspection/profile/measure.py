"""Rounds of a model, with a look at every kernel and without, interleaved: what a profile is made of.

round:  run x times undisturbed, the least time      |  in turn the one
        run x times with a look, the least run       |  or the other first
"""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...core.errors import UnsupportedError
from ...rates.loops import round_minimum
from ...runtime.model import CompiledModel
from .clock import Clock, Overhead, Span

_WARM_UP = 2


@dataclass(frozen=True)
class Timeline:
    """One run under observation.

    Attributes:
        seconds: of the whole call.
        spans: all that the VM called, kernels and its own builtins, from the start of the call.
    """

    seconds: float
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Rounds:
    """What was measured.

    Attributes:
        order: kernels in the order they ran.
        whole: seconds of an undisturbed run, one a round.
        timelines: the least run under observation of each round.
    """

    order: tuple[str, ...]
    whole: tuple[float, ...]
    timelines: tuple[Timeline, ...]

    def seconds(self, overhead: Overhead, arguments: Sequence[int]) -> list[tuple[float, ...]]:
        """For each round the seconds of each kernel launched, without what looking costs."""
        kernels = set(self.order)
        return [
            tuple(
                max(span.end - span.start - overhead.within(count), 0.0)
                for span, count in zip((s for s in timeline.spans if s.name in kernels), arguments, strict=True)
            )
            for timeline in self.timelines
        ]


def measure(
    model: CompiledModel, inputs: Mapping[str, np.ndarray], kernels: frozenset[str], rounds: int, seconds: float
) -> Rounds:
    """Run the rounds.

    Args:
        kernels: names of all kernels of the model.
        rounds: how many count; the two before warm up.
        seconds: how long each side runs in a round, once at least.

    Raises:
        UnsupportedError: no kernel ran, or not the same ones in each run.
    """
    whole, timelines = [], []
    run = functools.partial(model.run, inputs)
    for turn in range(rounds + _WARM_UP):
        if turn % 2:
            plain, seen = round_minimum(run, seconds), _observed(model, inputs, kernels, seconds)
        else:
            seen, plain = _observed(model, inputs, kernels, seconds), round_minimum(run, seconds)
        if turn >= _WARM_UP:
            whole.append(plain)
            timelines.append(seen)
    orders = {tuple(span.name for span in timeline.spans if span.name in kernels) for timeline in timelines}
    if len(orders) > 1:
        raise UnsupportedError(f"{model.metadata.model['name']}: the kernels that run differ from run to run")
    return Rounds(orders.pop(), tuple(whole), tuple(timelines))


def _observed(
    model: CompiledModel, inputs: Mapping[str, np.ndarray], kernels: frozenset[str], seconds: float
) -> Timeline:
    """The run whose kernels took least, of those of a round; one run, so that its parts fit together."""
    best: Timeline | None = None
    least, end = float("inf"), time.perf_counter() + seconds
    while True:
        clock = Clock()
        start = time.perf_counter()
        model.run_observed(inputs, clock.observe)
        now = time.perf_counter()
        spans = clock.spans()
        taken = sum(span.end - span.start for span in spans if span.name in kernels)
        if best is None or taken < least:
            shifted = tuple(Span(name, first - start, last - start) for name, first, last in spans)
            least, best = taken, Timeline(now - start, shifted)
        if now >= end:
            return best
