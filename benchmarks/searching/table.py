"""A frozen table of measured configurations, and a task over it that takes no time to measure.

One JSON document, gzipped:

    {"machine": {...}, "entries": [{
        "name": "3x3 64->64, 56x56: conv2d_winograd", "recipe": ..., "version": ...,
        "knobs": {"tile_o": [1, 2, 4], ...},    # the space: every legal point of it was tried
        "points": [0, 3, 4, ...],               # number of each in ConfigSpace.of(knobs)
        "seconds": [1.3e-3, null, ...],         # null: it failed
        "prior": [1.1e-3, ...],                 # the recipe's estimate
        "default": 17                           # of a compile without tuning, or null
    }, ...]}
"""

import gzip
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm_ext.core.recipe import Config
from tvm_ext.tuning.templates.space import ConfigSpace

from benchmarks.common.results import FOLDER

TABLE = FOLDER / "data" / "tuning_table.json.gz"


@dataclass(frozen=True)
class Entry:
    """One task of a table; the fields are those of the file."""

    name: str
    recipe: str
    version: int
    knobs: Mapping[str, Sequence[Any]]
    points: Sequence[int]
    seconds: Sequence[float | None]
    prior: Sequence[float]
    default: int | None = None

    def __post_init__(self) -> None:
        if not len(self.points) == len(self.seconds) == len(self.prior) > 0:
            raise ValueError(f"{self.name}: points, seconds and prior are one of each a point")
        if not any(self.seconds):
            raise ValueError(f"{self.name}: no point was measured")

    @property
    def best(self) -> float:
        """Seconds of the fastest point."""
        return min(s for s in self.seconds if s is not None)


def read_table(path: pathlib.Path = TABLE) -> tuple[dict[str, Any], list[Entry]]:
    """The machine it was measured on, and the entries.

    Raises:
        FileNotFoundError: there is no such file; says how to make it.
    """
    if not path.exists():
        how = "python benchmarks/tuning_table.py measures it"
        raise FileNotFoundError(f"{path}: no such table; {how}")
    document = json.loads(gzip.decompress(path.read_bytes()))
    return document["machine"], [Entry(**entry) for entry in document["entries"]]


def write_table(path: pathlib.Path, machine: Mapping[str, Any], entries: Sequence[Entry]) -> None:
    """Equal tables are equal files: the archive holds no time."""
    document = {"machine": dict(machine), "entries": [vars(entry) for entry in entries]}
    text = json.dumps(document, separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


class TableTask:
    """What tuners read of a task, over an entry.

    Args:
        estimate: whether they may see the recipe's estimate, and the default that it chose.
    """

    def __init__(self, entry: Entry, estimate: bool) -> None:
        self.entry = entry
        pairs = zip(entry.points, entry.seconds, strict=True)
        self._seconds = {point: math.inf if s is None else s for point, s in pairs}
        self._prior = dict(zip(entry.points, entry.prior, strict=True)) if estimate else {}
        self.space = ConfigSpace.of(entry.knobs, lambda c: self.space.index(c) in self._seconds)
        known = estimate and entry.default is not None
        self.default: Config | None = self.space.at(entry.default) if known else None

    def seconds(self, config: Config) -> float:
        """As measured; infinite if it failed."""
        return self._seconds[self.space.index(config)]

    def prior(self, config: Config) -> float:
        return self._prior.get(self.space.index(config), math.nan)

    def features(self, config: Config) -> np.ndarray:
        return self.features_of([config])[0]

    def features_of(self, configs: Sequence[Config]) -> np.ndarray:
        """log2 of each number (1 more, so that 0 has one too), and the sum of each pair: of the
        configuration only."""
        numbers = [[config[knob] for knob in self.space.knobs] for config in configs]
        values = np.log2(1 + np.array(numbers, dtype=float))
        first, second = np.triu_indices(values.shape[1], 1)
        return np.hstack([values, values[:, first] + values[:, second]])
