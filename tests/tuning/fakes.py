"""A task with a known landscape, and a measurer that needs no machine."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tvm_ext.core.recipe import Config
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.tuning.measure import Measurement
from tvm_ext.tuning.templates.space import ConfigSpace


class FakeTask:
    """Two knobs; `seconds(config)` is the truth."""

    def __init__(self, op: str, recipe: str = "fake", size: int = 6, scale: float = 1e-3) -> None:
        self.name, self.key = f"{op} [{recipe}]", TaskKey.of(op, [["TENSOR", [size], "float32"]])
        self.recipe, self.version, self.flops = recipe, 1, 1e6
        self.space = ConfigSpace.of({"a": list(range(size)), "b": list(range(size))})
        self.default: Config | None = {"a": 0, "b": 0}
        self.scale, self.size = scale, size

    def seconds(self, config: Config) -> float:
        best = self.size - 2
        return self.scale * (1 + 0.1 * abs(config["a"] - best) + 0.05 * abs(config["b"] - best))

    def prior(self, config: Config) -> float:
        return math.nan

    def features(self, config: Config) -> np.ndarray:
        return np.array([config["a"], config["b"]], np.float32)

    def describe(self) -> dict[str, Any]:
        return {"kind": "fake"}

    def candidate(self, config: Config) -> dict[str, Any]:
        return {"config": config}


class FakeMeasurer:
    """Tells the truth of a :class:`FakeTask`; `fault(task, config)` names an error instead."""

    def __init__(self, fault: Callable[[FakeTask, Config], str] = lambda task, config: "", stop_after: int = 0) -> None:
        self.seen: list[tuple[str, tuple[int, int]]] = []
        self._fault, self._stop_after = fault, stop_after

    def measure(self, task: Any, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        for config in configs:
            if self._stop_after and len(self.seen) == self._stop_after:
                raise KeyboardInterrupt
            self.seen.append((task.key.op + task.recipe, (config["a"], config["b"])))
            error, seconds = self._fault(task, config), task.seconds(config)
            if error:
                yield Measurement(config, (), error, "as the test wants it", None, False, 0.01)
            else:
                discarded = seconds > 1.5 * best
                yield Measurement(config, (seconds,) * (1 if discarded else 3), "", "", 1e-7, discarded, 0.01)


class ListLog:
    """Keeps records."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def append(self, record: Any) -> None:
        self.records.append(record)
