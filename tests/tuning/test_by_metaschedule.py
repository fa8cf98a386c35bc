"""A whole session by MetaSchedule: the database in a folder, and a compile that uses it."""

import json
import shutil
from pathlib import Path

import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.tuning.metaschedule.in_process import InProcess
from tests.tuning.rounds import shorten
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.schedule_database import RECORDS, WORKLOADS
from tvm_ext.tuning import tune as tune_module
from tvm_ext.tuning.report import INTERRUPTED

pytest.importorskip("xgboost")
MACHINE = Machine.detect(threads=1)


def tiny():
    """A convolution and a matmul, of odd sizes."""
    weights = {"w": random(17, 5, 3, 3), "b": random(17), "v": random(13, 11)}
    nodes = [node("Conv", "x w b", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "c"), node("MatMul", "c v", "y")]
    return model(nodes, [value("x", (1, 5, 7, 13))], [value("y", (1, 17, 7, 11))], weights)


class Slower(InProcess):
    """Each candidate takes longer than the one before it: the first one, a recipe's default, is the best."""

    def __init__(self, stop_after=0):
        super().__init__(MACHINE, lambda number: 1e-3 * number)
        self._stop_after = stop_after

    def measure(self, task, configs, best=float("inf")):
        for result in super().measure(task, configs, best):
            yield result
            if self.measured == self._stop_after:
                raise KeyboardInterrupt


def tune(folder, measurer=None, **options):
    events = []
    options = {"trials": 4, "threads": 1, **options}
    report = tune_module.tune(
        tiny(), log=folder, tuner="metaschedule", measurer=measurer or Slower(), on_event=events.append, **options
    )
    return report, events


def records(folder):
    path = folder / RECORDS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.long
def test_a_compile_uses_the_database_of_a_session(tmp_path):
    folder = tmp_path / "db"
    report = tvm_ext.tune(tiny(), log=folder, tuner="metaschedule", trials=4, threads=1)
    assert report.ok and report.trials == 4 == len(records(folder)) and (folder / WORKLOADS).is_file()
    assert report.ratio is not None and report.error is not None and report.error < 1e-5
    assert report.stopped == "4 trials are done" and all(row.trials for row in report.rows)
    json.dumps(report.as_dict(), allow_nan=False)
    compiled = tvm_ext.compile(tiny(), records=folder, threads=1, cache=False)
    used = {k["name"]: k["record"] for k in compiled.report["kernels"]}
    tuned = {row.name for row in report.rows if row.after < float("inf")}
    assert tuned and {name for name, record in used.items() if record == "MetaSchedule"} == tuned
    checked = tvm_ext.verify(compiled, tiny())
    assert checked.ok, str(checked)
    plain = tvm_ext.compile(tiny(), records=None, threads=1, cache=False)
    assert not any(k["record"] for k in plain.report["kernels"])


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The database of a session of four trials, its report and its events."""
    folder = tmp_path_factory.mktemp("session") / "db"
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch.setattr)
        return folder, *tune(folder)


@pytest.mark.long
def test_events_rows_and_another_number_of_threads(session):
    folder, report, events = session
    trials = [e for e in events if e["event"] == "trial"]
    assert events[0]["event"] == "start" and events[-1]["event"] == "end" and len(trials) == 4
    assert trials[-1]["trial"] == 4 == report.trials and events[0]["tasks"] == [row.name for row in report.rows]
    assert all(row.before <= row.after or not row.kept for row in report.rows)
    other = tvm_ext.compile(tiny(), records=folder, threads=2, cache=False)
    assert not any(k["record"] for k in other.report["kernels"])
    (scheduling,) = [p for p in other.report["passes"] if p["name"] == "schedule-kernels"]
    assert "record refused: it is for another number of threads: 1, not 2" in json.dumps(scheduling["skipped"])
    assert tvm_ext.verify(other, tiny()).ok


@pytest.mark.long
def test_a_second_session_goes_on(session, tmp_path):
    folder = Path(shutil.copytree(session[0], tmp_path / "db"))
    before = records(folder)
    tune(folder, trials=2, resume=True)
    assert len(records(folder)) == 6 and records(folder)[:4] == before
    assert len({json.dumps([r[0], r[1][0]]) for r in records(folder)}) == 6  # kernel and trace


@pytest.mark.long
def test_ctrl_c_and_the_end_of_time_keep_what_is_there(tmp_path):
    report, events = tune(tmp_path / "one", Slower(stop_after=3))
    assert report.stopped == INTERRUPTED and report.interrupted and report.ratio is None
    assert len(records(tmp_path / "one")) == 3 and events[-1]["event"] != "end"
    report, _ = tune(tmp_path / "two", trials=None, minutes=1e-6)
    assert report.stopped == "1e-06 minutes are over" and report.trials == 1 == len(records(tmp_path / "two"))


@pytest.mark.long
def test_a_dry_run_and_chosen_tasks(tmp_path):
    report, events = tune(tmp_path / "db", dry_run=True)
    assert report.trials == 0 and len(report.rows) == 2 and not (tmp_path / "db").exists() and not events
    name = report.rows[0].name
    report, _ = tune(tmp_path / "db", tasks=[name], trials=2)
    assert [row.name for row in report.rows] == [name]


def test_what_makes_no_sense_is_an_error(tmp_path):
    with pytest.raises(OptionError, match="no kernel has such a name") as error:
        tune(tmp_path / "db", tasks=["conv3d"])
    assert "kernels: " in error.value.fix
    with pytest.raises(OptionError, match="there is no folder"):
        tune(tmp_path / "db", resume=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match="holds no MetaSchedule database"):
        tvm_ext.compile(tiny(), records=tmp_path / "empty", cache=False)
    with pytest.raises(OptionError, match="one MetaSchedule database can be used"):
        tvm_ext.compile(tiny(), records=[tmp_path, tmp_path / "empty"], cache=False)
    nothing = model([node("Identity", "x", "y")], [value("x", (2, 3))], [value("y", (2, 3))])
    with pytest.raises(OptionError, match="no kernel for MetaSchedule"):
        tune_module.tune(nothing, log=tmp_path / "db", tuner="metaschedule", trials=1)
    free = model([node("Relu", "x", "y")], [value("x", ("N", 3))], [value("y", ("N", 3))])
    with pytest.raises(OptionError, match="static shapes"):
        tune_module.tune(free, log=tmp_path / "db", tuner="metaschedule", trials=1, shapes={"x": ("N", 3)})
