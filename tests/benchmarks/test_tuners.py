"""The comparison of tuners reads a table, counts trials and writes its page; the table's script thins and scales."""

import argparse
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from benchmarks import tuners, tuning_table
from benchmarks.searching.table import Entry, TableTask, read_table, write_table
from tvm_ext.core.recipe import Config
from tvm_ext.tuning.templates.space import ConfigSpace

KNOBS = {"a": [1, 2, 4, 8], "b": [1, 2, 3], "threads": [2]}
#: a + 10 b but for one point that failed; the point of index 11 (8, 3) is illegal.
ENTRY = Entry(
    "layer [recipe]", "recipe", 1, KNOBS, list(range(11)), [12.0, None, *(float(20 + i) for i in range(8)), 11.0],
    [1.0 + i for i in range(11)], 3,
)  # fmt: skip


def test_a_table_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "folder" / "table.json.gz"
    write_table(path, {"cpu": "x"}, [ENTRY])
    first = path.read_bytes()
    assert read_table(path) == ({"cpu": "x"}, [ENTRY])
    write_table(path, *read_table(path))
    assert path.read_bytes() == first
    with pytest.raises(FileNotFoundError, match=r"tuning_table\.py measures it"):
        read_table(tmp_path / "none.json.gz")


@pytest.mark.parametrize(
    ("change", "message"), [({"prior": []}, "one of each a point"), ({"seconds": [None] * 11}, "no point was measured")]
)
def test_a_table_that_is_none(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(ENTRY, **change)


def test_a_task_over_a_table() -> None:
    task = TableTask(ENTRY, estimate=True)
    assert not task.space.legal({"a": 8, "b": 3, "threads": 2}) and task.space.legal({"a": 8, "b": 2, "threads": 2})
    assert task.default == task.space.at(3) and task.prior(task.space.at(3)) == 4.0
    assert task.seconds(task.space.at(1)) == math.inf and task.seconds(task.space.at(10)) == 11.0


def test_without_the_estimate_nothing_of_it_is_seen() -> None:
    """Features are those of the knobs: equal for tables that differ in their estimates only."""
    task = TableTask(ENTRY, estimate=False)
    assert task.default is None and math.isnan(task.prior(task.space.at(3)))
    other = TableTask(dataclasses.replace(ENTRY, prior=[5.0] * 11, default=None), estimate=False)
    configs = [task.space.at(i) for i in range(11)]
    assert (task.features_of(configs) == other.features_of(configs)).all()
    assert (task.features(configs[4]) == task.features_of(configs)[4]).all()


@pytest.mark.parametrize("column", tuners.COLUMNS)
def test_trials_are_counted_up_to_the_first_good_point(column: str) -> None:
    trials = tuners.trials_needed(ENTRY, column, 0, 4)
    assert 1 <= trials <= 11
    if column == "grid":
        assert trials == 11  # 12 is not within 5 % of 11, and the last point is the best


def test_the_page(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed = {ENTRY.name: {"random": [20, 40, 60], "xgb": [10, 10, 30], "ga": [20, 20, 20]}}
    args = argparse.Namespace(seeds=3, batch=16, output=tmp_path)
    assert tuners.write([ENTRY], needed, {"cpu": "a CPU"}, args) == 0
    text = (tmp_path / "tuners.md").read_text()
    assert text == capsys.readouterr().out
    assert "| layer [recipe] | 11 | 1 | 40 | 10 | 20 | 0.25 |" in text and "**0.25** (bar: 0.5 or less)" in text
    assert json.loads((tmp_path / "tuners.json").read_text())["xgb_over_random"] == 0.25
    assert (tmp_path / "tuners.svg").read_text().startswith("<svg")
    needed[ENTRY.name]["xgb"] = [30, 30, 30]
    assert tuners.write([ENTRY], needed, {"cpu": "a CPU"}, args) == 1


class Task:
    """A recipe's task with 6 x 4 points, a * b at most 64."""

    name, recipe, version = "layer [recipe]", "recipe", 1
    default: Config = {"a": 3, "b": 8}  # noqa: RUF012

    def __init__(self) -> None:
        self.space = ConfigSpace.of({"a": [1, 2, 3, 4, 8, 16], "b": [1, 2, 8, 64]}, lambda c: c["a"] * c["b"] <= 64)

    def prior(self, config: Config) -> float:
        return 1e-3 * config["a"]


def test_a_space_is_thinned_where_choices_are_dense() -> None:
    whole = tuning_table.thinned(Task(), 1000)
    assert len(whole.points) == 18 and whole.space.points == 24
    grid = tuning_table.thinned(Task(), 15)
    assert list(grid.space.knobs["a"]) == [1, 2, 3, 8, 16]  # 4 is the nearest to its neighbour that may go
    assert len(grid.points) == 15 and grid.space.at(grid.default) == Task.default
    smallest = tuning_table.thinned(Task(), 6)
    assert len(smallest.points) <= 6 and smallest.space.legal(Task.default)


@dataclasses.dataclass
class Measured:
    """As `LocalMeasurer` gives them."""

    config: Config
    costs: tuple[float, ...]
    error: str = ""
    detail: str = ""

    @property
    def cost(self) -> float:
        return self.costs[0]


class Measurer:
    """A machine that is `slow` times as slow as it was; a = 2 fails."""

    def __init__(self, slow: float = 1.0) -> None:
        self.slow = slow

    def measure(self, task: Task, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measured]:
        for config in reversed(configs):
            yield Measured(config, () if config["a"] == 2 else (self.slow * config["a"] * config["b"],))


def test_rows_are_continued(tmp_path: pathlib.Path) -> None:
    grid, path = tuning_table.thinned(Task(), 1000), tmp_path / "rows.jsonl"
    assert tuning_table.read_rows(path, grid.task.name) == []
    first, second, third = tuning_table.missing_batches(grid, [], 6)
    rows = [tuning_table.measure(grid, batch, Measurer()) for batch in (first, second, third)]  # type: ignore[arg-type]
    text = "".join("\n" + json.dumps(row) for row in rows[:2]) + "\n" + json.dumps(rows[2])[:30]  # cut off
    path.write_text(text + "\n" + json.dumps({**rows[2], "entry": "another"}))
    assert tuning_table.read_rows(path, grid.task.name) == rows[:2]
    assert list(tuning_table.missing_batches(grid, rows[:2], 6)) == [third]
    entry = tuning_table.entry_of(grid, rows)
    for point, seconds in zip(entry.points, entry.seconds, strict=True):
        config = grid.space.at(point)
        assert seconds == (None if config["a"] == 2 else pytest.approx(config["a"] * config["b"]))
    assert entry.best == 1.0 and entry.default == grid.default


def test_a_row_around_which_the_default_was_slow_is_measured_again() -> None:
    grid = tuning_table.thinned(Task(), 1000)
    (batch, *_) = tuning_table.missing_batches(grid, [], 6)
    usual, late, slow = (tuning_table.measure(grid, batch, Measurer(by)) for by in (1.0, 1.3, 1.5))  # type: ignore[arg-type]
    assert not tuning_table.disturbed(slow, [])
    assert not tuning_table.disturbed(late, [usual])
    assert tuning_table.disturbed(slow, [usual, late])


def test_a_default_that_fails_is_told() -> None:
    grid = tuning_table.thinned(Task(), 1000)
    grid = dataclasses.replace(grid, default=grid.space.index({"a": 2, "b": 1}))
    with pytest.raises(RuntimeError, match="its default fails"):
        tuning_table.measure(grid, [0], Measurer())  # type: ignore[arg-type]
