"""Tasks for tuners that take no hardware: spaces with formulas for the seconds."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tvm_ext.core.recipe import Config
from tvm_ext.tuning.templates.space import ConfigSpace
from tvm_ext.tuning.tuners import Tuner

Seconds = Callable[[Config], float]


class Landscape:
    """What tuners read of a task; the seconds are for the test alone."""

    def __init__(
        self, choices: Mapping[str, Sequence[Any]], seconds: Seconds, *, legal: Callable[[Config], bool] | None = None,
        prior: Seconds | None = None, default: Config | None = None,
    ) -> None:  # fmt: skip
        self.space = ConfigSpace.of(choices, legal)
        self.seconds, self.default = seconds, default
        self._prior = prior

    def prior(self, config: Config) -> float:
        return self._prior(config) if self._prior else math.nan

    def features(self, config: Config) -> np.ndarray:
        return np.array([math.log2(1 + value) for value in config.values()])

    @functools.cached_property
    def legal(self) -> dict[int, float]:
        """Every legal point and its seconds."""
        configs = map(self.space.at, range(self.space.points))
        return {self.space.index(c): self.seconds(c) for c in configs if self.space.legal(c)}


SIZES = {"a": [1, 2, 4, 8], "b": [1, 2, 3], "c": [0, 1]}


def plain(**changes: Any) -> Landscape:
    """24 points, 15 of them legal; the product of a and b is at most 8, and not 3."""
    legal = lambda c: c["a"] * c["b"] <= 8 and c["a"] * c["b"] != 3  # noqa: E731
    return Landscape(SIZES, lambda c: 1.0 / (c["a"] + c["b"]) + 0.1 * c["c"], **{"legal": legal, **changes})


def kernel(seed: int = 0, *, estimate: bool = False) -> Landscape:
    """A register-tiled kernel: 12,288 points, a third legal; what single knobs, pairs of knobs and noise do is random.

    The estimate knows tiles and waste, and nothing of the random effects.
    """
    choices = {
        "tile_o": [1, 2, 3, 4, 6, 8], "tile_p": [1, 2, 4, 5, 6, 7, 8, 12], "parts": [1, 2, 4, 8],
        "chunk": [1, 2, 4, 8, 16, 32, 64, 128], "rows": [0, 1, 2, 4, 7, 14, 28, 56],
    }  # fmt: skip
    rng = np.random.default_rng(seed)
    single = {
        name: dict(zip(values, rng.normal(0, 0.12, len(values)), strict=True)) for name, values in choices.items()
    }
    pairs = {(a, b): rng.normal(0, 0.06, (len(choices[a]), len(choices[b]))) for a in choices for b in choices if a < b}
    noise = rng.normal(0, 0.02, math.prod(map(len, choices.values())))

    def prior(c: Config) -> float:
        tile, chunk = c["tile_o"] * c["tile_p"], c["chunk"]
        load = (c["tile_o"] + c["tile_p"]) / tile
        return (1 + load) * (1 + 2 / tile) * (1 + 0.05 * abs(math.log2(chunk / 16))) * (1 + 0.02 * c["parts"])

    def seconds(c: Config) -> float:
        places = {name: values.index(c[name]) for name, values in choices.items()}
        effect = sum(single[name][c[name]] for name in choices)
        effect += sum(table[places[a], places[b]] for (a, b), table in pairs.items())
        return prior(c) * math.exp(effect + noise[task.space.index(c)])

    task = Landscape(
        choices, seconds, legal=lambda c: c["tile_o"] * c["tile_p"] + min(c["tile_o"], c["tile_p"]) < 32,
        prior=prior if estimate else None,
    )  # fmt: skip
    return task


def search(task: Landscape, tuner: Tuner, trials: int, batch: int = 16) -> list[float]:
    """Seconds of each trial, in order."""
    times: list[float] = []
    while len(times) < trials and (configs := tuner.propose(min(batch, trials - len(times)))):
        results = [(config, task.seconds(config)) for config in configs]
        tuner.update(results)
        times += [seconds for _, seconds in results]
    return times


def trials_to(task: Landscape, tuner: Tuner, target: float, most: int = 4000) -> int:
    """Trials until seconds of at most `target`; `most` if it takes more."""
    trials = 0
    while trials < most and (configs := tuner.propose(16)):
        for config in configs:
            trials += 1
            if task.seconds(config) <= target:
                return trials
        tuner.update([(config, task.seconds(config)) for config in configs])
    return most
