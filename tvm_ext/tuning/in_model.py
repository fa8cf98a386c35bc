"""Tuned against untuned where it counts: kernels timed inside the whole model, and the whole model itself.

A kernel alone finds its inputs in other caches than behind its neighbours, and its layout may cost a transform next
door. So at the end of a session both programs run in turn, in one process, on the same threads: round by round, first
with a look at every kernel, then undisturbed. Figures are ratios of the same round.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.records.task_key import TaskKey
from ..rates.loops import round_minimum
from ..runtime.model import CompiledModel
from ..schedules.recipes import layout_transform


@dataclass(frozen=True)
class Ratio:
    """Time of a program over that of another, of paired rounds.

    Attributes:
        median: of the rounds' ratios.
        low, high: interval that holds the true median with a probability of 95 % or more (order statistics).
        rounds: how many.
        seconds: best round of the first, and of the second.
    """

    median: float
    low: float
    high: float
    rounds: int
    seconds: tuple[float, float]

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> Ratio:
        """From the seconds of both in each round."""
        ratios = sorted(a / b for a, b in zip(first, second, strict=True))
        low, high = quantile_interval(len(ratios))
        return cls(statistics.median(ratios), ratios[low], ratios[high], len(ratios), (min(first), min(second)))

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f}, {self.rounds} rounds)"


def quantile_interval(count: int, quantile: float = 0.5) -> tuple[int, int]:
    """Places, in a sorted sample, between which the population's quantile lies with a probability of 95 %.

    The number of values below a quantile is binomial with its probability (W. J. Conover, "Practical Nonparametric
    Statistics", section 3.2). Small samples give their whole range.
    """

    def below(probability: float) -> int:
        """The largest number of values below it that is too small with half of the probability that is left."""
        tail, number = 0.0, -1
        for value in range(count):
            tail += math.comb(count, value) * probability**value * (1 - probability) ** (count - value)
            if tail > 0.025:
                break
            number = value
        return max(number, 0)

    return below(quantile), count - 1 - below(1 - quantile)


def paired(
    first: CompiledModel, second: CompiledModel, inputs: Mapping[str, np.ndarray], rounds: int = 15,
    seconds: float = 0.2,
) -> Ratio:  # fmt: skip
    """Rounds of both programs, interleaved; each round takes each one's minimum.

    Args:
        seconds: how long each runs in a round, once at least.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        for index in order:
            best = round_minimum(functools.partial((first, second)[index].run, inputs), seconds)
            if turn:  # the round before warms up
                times[index].append(best)
    return Ratio.of(*times)


def task_seconds(
    models: Sequence[CompiledModel], inputs: Mapping[str, np.ndarray], owners: Mapping[str, TaskKey], rounds: int = 15
) -> list[dict[TaskKey, float]]:
    """For each program: seconds of all kernels of a task in one call of the model, median of interleaved rounds.

    A layout transform is counted to the kernel behind it.

    Args:
        owners: ONNX node -> the task whose kernel computes it.
    """
    samples: list[dict[TaskKey, list[float]]] = [{} for _ in models]
    tasks = [_tasks_of_kernels(model, owners) for model in models]
    for turn in range(rounds + 2):
        for index, model in enumerate(models):
            clock = _KernelClock()
            model.run_observed(inputs, clock.observe)
            if turn > 1:  # the rounds before warm up
                for key, taken in _by_task(clock.spans, tasks[index]).items():
                    samples[index].setdefault(key, []).append(taken)
    return [{key: statistics.median(taken) for key, taken in by_task.items()} for by_task in samples]


class _KernelClock:
    """Kernels in the order they ran, with their seconds."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float]] = []
        self._start = 0.0

    def observe(self, name: str, before: bool) -> None:
        if before:
            self._start = time.perf_counter()
        else:
            self.spans.append((name, time.perf_counter() - self._start))


def _tasks_of_kernels(model: CompiledModel, owners: Mapping[str, TaskKey]) -> dict[str, TaskKey]:
    nodes = {kernel["name"]: [node for node in kernel["nodes"] if node in owners] for kernel in model.report["kernels"]}
    return {name: owners[owned[0]] for name, owned in nodes.items() if owned}


def _by_task(spans: Sequence[tuple[str, float]], tasks: Mapping[str, TaskKey]) -> dict[TaskKey, float]:
    seconds: dict[TaskKey, float] = {}
    waiting = 0.0  # of transforms, for the kernel that reads what they write
    for name, taken in spans:
        if name.startswith(layout_transform.NAME):
            waiting += taken
        elif (key := tasks.get(name)) is not None:
            seconds[key] = seconds.get(key, 0.0) + taken + waiting
            waiting = 0.0
    return seconds
