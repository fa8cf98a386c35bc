"""What tests of a choice by measuring share: models, their groups, and measurers that need no machine."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.onnx_graphs import model, node, random, two_products, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config, config_text
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import RecordBook
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.tuning.candidates import Candidates, candidate
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.measure import Measurement

MACHINE = Machine.detect(threads=2)
#: The matmuls differ a hundredfold in work, and the convolution has two recipes.
MATMULS = two_products(64, 96, 256, 8)
CONV = model(
    [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")],
    [value("x", (1, 16, 12, 12))], [value("y", (1, 32, 12, 12))], {"w": random(32, 16, 3, 3, scale=0.2)},
)  # fmt: skip
OPTIONS = CompileOptions(threads=2, choose="measure", seconds=1000.0)


class Fake:
    """Tells seconds of candidates; `fault` names errors, `raises` is raised for groups of an operator."""

    def __init__(
        self, seconds: Callable[[TaskKey, Config], float] = lambda key, config: 1e-3,
        fault: Callable[[Config], str] = lambda config: "", raises: dict[str, Exception] | None = None,
    ) -> None:  # fmt: skip
        self.seen: list[tuple[TaskKey, str]] = []
        self.batches: list[TaskKey] = []
        self._seconds, self._fault, self._raises = seconds, fault, raises or {}

    def measure(self, task: Any, configs: Sequence[Config], best: float = 0.0) -> Iterator[Measurement]:
        self.batches.append(task.key)
        if task.key.op in self._raises:
            raise self._raises[task.key.op]
        for config in configs:
            self.seen.append((task.key, config_text(config)))
            assert task.candidate(config) == config and task.describe()["kind"] == "group"
            error, seconds = self._fault(config), self._seconds(task.key, config)
            yield Measurement(config, () if error else (seconds,) * 9, error, "as the test wants it", None, False, 0.01)


def groups(proto: Any = MATMULS, timings: RecordBook | None = None, records: RecordBook | None = None) -> list[Any]:
    """Candidates of the groups, those of the most work first."""
    works = sorted(workloads_of(proto, OPTIONS, MACHINE), key=lambda work: -work.plan.cost)
    return [Candidates.of(work, MACHINE, timings or RecordBook(), records or RecordBook()) for work in works]


def recorded(machine: dict[str, Any], **changes: Any) -> Record:
    """A point that the estimate does not name."""
    large = groups()[0]
    (task,) = large.work.tasks
    named = {config_text(task) for task in large.queue}
    other = next(c for c in task.neighbours(task.default)[::-1] if config_text(candidate(task.recipe, c)) not in named)
    fields = {"config": other, "costs": (1e-3,), "machine": machine, "session": "elsewhere", **changes}
    return Record(large.work.key, task.recipe, task.version, **fields)


class Nothing:
    """Measures nothing more."""

    def measure(self, task: Any, configs: Any, best: float = 0.0) -> Any:
        raise AssertionError(f"{task.name} is measured again: {configs}")
