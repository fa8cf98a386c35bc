"""A whole session: a small model is tuned with real workers, judged, and compiled with its log."""

import json
import types
from unittest.mock import Mock

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, two_products, value
from tests.tuning.fakes import FakeMeasurer
from tests.tuning.small_templates import tiled
from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import RecordBook, machine_fields
from tvm_ext.tuning import tune as tune_module
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.measure import Measurement, TaskError
from tvm_ext.tuning.report import INTERRUPTED, INTERRUPTED_LATE
from tvm_ext.tuning.verdict import Judgement, judge


def small_model():
    """Two matmuls, both of which have a space."""
    return two_products(33, 40, 64, 24)


class Truth(FakeMeasurer):
    """Each candidate takes as long as its task's estimate says."""

    def measure(self, task, configs, best=float("inf")):
        for config in configs:
            yield Measurement(config, (task.prior(config),) * 3, "", "", 1e-7, False, 0.01)


def with_fakes(tmp_path, **options):
    options = {"measurer": Truth(), "tuner": "random", "log": tmp_path / "f.json", "threads": 1, **options}
    return tune_module.tune(small_model(), **options)


@pytest.mark.long
def test_a_session_writes_a_log_that_a_compile_uses(tmp_path):
    log, events = tmp_path / "small.json", []
    report = tvm_ext.tune(
        small_model(), log=log, trials=8, tuner="random", threads=1, on_event=lambda e: events.append(dict(e))
    )
    assert report.trials == 8 == sum(e["event"] == "trial" for e in events)
    assert [e["event"] for e in events[:2]] == ["start", "peak"] and events[1]["flops"] > 1e8
    json.dumps(report.as_dict())
    book = RecordBook.read([log])
    assert len(book.records) == 8 and not book.problems
    assert all(r.check is not None and r.check < 1e-6 for r in book.records if not r.error)
    assert {r.error for r in book.records} == {""}
    compiled = tvm_ext.compile(small_model(), records=log, threads=1, cache=False)
    assert tvm_ext.verify(compiled, small_model()).ok
    used = {k["name"]: k["record"] for k in compiled.report["kernels"]}
    kept = sum(row.kept for row in report.rows)
    assert sum(bool(session) for session in used.values()) >= kept
    if report.ratio is not None:
        assert report.error is not None and report.error < 1e-5


@pytest.mark.long
def test_a_template_is_compared_with_its_unscheduled_function(tmp_path):
    report = tvm_ext.tune(tiled.task(32, 32, 32), log=tmp_path / "t.json", trials=6, tuner="random", threads=1)
    (row,) = report.rows
    assert row.trials == 6 and row.before > 0 and row.after > 0 and report.ratio is None
    assert "tiled" in str(report)


def test_a_dry_run_measures_nothing(tmp_path):
    report = tvm_ext.tune(small_model(), log=tmp_path / "none.json", dry_run=True, threads=1)
    assert report.trials == 0 and len(report.rows) == 2 and not (tmp_path / "none.json").exists()
    assert "nothing was measured" in str(report) and all(row.space > 1 for row in report.rows)


def test_an_interrupted_session_says_so_and_keeps_its_records(tmp_path):
    report = with_fakes(tmp_path, trials=5, measurer=Mock(**{"measure.side_effect": KeyboardInterrupt}))
    assert report.stopped == INTERRUPTED and report.trials == 0
    assert RecordBook.read([tmp_path / "f.json"]).problems == []


def test_an_interrupted_verdict_keeps_all_records(tmp_path, monkeypatch):
    monkeypatch.setattr(tune_module, "judge", Mock(side_effect=KeyboardInterrupt))
    report = with_fakes(tmp_path, trials=5)
    assert report.stopped == INTERRUPTED_LATE and report.interrupted and report.trials == 5 and report.ratio is None
    book = RecordBook.read([tmp_path / "f.json"])
    assert len(book.records) == 5 and not book.verdicts and not book.problems


def test_a_model_that_cannot_be_timed_at_the_end_still_has_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(tune_module, "judge", Mock(side_effect=ToolError("no linker")))
    report = with_fakes(tmp_path, trials=5)
    assert report.trials == 5 and not report.ok and report.failed == "the tuned model cannot be timed: no linker"


def test_a_wrong_final_program_is_loud(tmp_path, monkeypatch):
    checked = types.SimpleNamespace(ok=False, outputs=(), of_range=None)
    monkeypatch.setattr(tune_module, "judge", lambda *a, **k: Judgement(None, checked, {}, (), "disagrees"))
    report = with_fakes(tmp_path, trials=5)
    assert not report.ok and "disagrees with onnxruntime, so no record is kept" in str(report)


def test_tasks_that_cannot_be_measured_are_in_the_report(tmp_path):
    report = with_fakes(tmp_path, trials=5, measurer=Mock(**{"measure.side_effect": TaskError("no finite number")}))
    assert report.stopped == "no task can be measured" and report.trials == 0 and not report.ok
    assert [row.unusable for row in report.rows] == ["no finite number"] * 2


def test_a_tiny_budget_and_a_log_of_another_machine(tmp_path):
    events = []
    report = with_fakes(tmp_path, minutes=1e-6, on_event=events.append)
    assert report.trials <= 1 and "minutes are over" in report.stopped
    with_fakes(tmp_path, trials=6)
    log = tmp_path / "f.json"
    log.write_text(log.read_text().replace('"threads":1', '"threads":64'))
    report = with_fakes(tmp_path, trials=4, resume=True, on_event=events.append)
    assert report.trials == 4 and any("made for number of threads 64, this is 1" in note for note in report.notes)
    started = [e for e in events if e["event"] == "start"][-1]
    assert started["known"] == 0 and sum(started["refused"].values()) >= 6


def test_servers_of_another_kind_are_not_judged_here(tmp_path, monkeypatch):
    class Servers(FakeMeasurer):
        measure = Truth.measure

        def __init__(self, *tracker):
            super().__init__()

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(tune_module, "RPCMeasurer", Servers)
    report = with_fakes(tmp_path, measurer=None, trials=4, threads=1024, rpc=("h", 1, "k"))
    assert report.trials == 4 and report.ok and any("was not timed" in note for note in report.notes)


def test_options_that_make_no_sense_are_errors(tmp_path):
    for wrong, words in (
        ({"tuner": "magic"}, "choose one of 'beam'"), ({"target": "aarch64-linux-gnu:cortex-a72"}, "measured here"),
        ({"trials": 0}, "trials=0"), ({"records": None}, "compares with the defaults"),
        ({"offload": "systolic"}, "kernels of the CPU"), ({"seed": "x"}, "seed='x'"), ({"resume": 1}, "resume=1"),
        ({"rpc": ("h", 1)}, "rpc=.*tracker"), ({"rpc": "abc"}, "rpc=.*tracker"), ({"rpc": ("h", 1 << 16, "k")}, "rpc="),
        ({"measurer": 3}, "measures nothing"), ({"tasks": [3]}, "tasks="), ({"on_event": 3}, "on_event=3"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=words):
            tvm_ext.tune(small_model(), log=tmp_path / "x.json", **wrong)
    with pytest.raises(OptionError, match="the path of the log"):
        tvm_ext.tune(small_model(), log=3, dry_run=True)
    with pytest.raises(ToolError, match="no file can be written there"):
        tvm_ext.tune(small_model(), log=tmp_path / "no" / "folder" / "x.json", trials=1)
    nothing = model([node("Identity", "x", "y")], [value("x", (2, 3))], [value("y", (2, 3))])
    with pytest.raises(OptionError, match="nothing to tune in it"):
        tvm_ext.tune(nothing, log=tmp_path / "x.json", trials=1)
    assert not (tmp_path / "x.json").exists()
    report = tvm_ext.tune(small_model(), tasks="matmul", dry_run=True, log=tmp_path / "x.json")  # text, not letters
    assert len(report.rows) == 2


def test_unknown_tasks_and_a_missing_log_are_errors(tmp_path):
    with pytest.raises(OptionError, match=r"no task .* has such a name") as error:
        tvm_ext.tune(small_model(), tasks=["conv3d"], log=tmp_path / "x.json", dry_run=True)
    assert "matmul" in error.value.fix
    with pytest.raises(OptionError, match="there is no log"):
        tvm_ext.tune(small_model(), log=tmp_path / "x.json", resume=True)
    with pytest.raises(OptionError, match="unknown compile option"):
        tvm_ext.tune(small_model(), log=tmp_path / "x.json", colour="red")


def test_a_record_that_is_slow_in_the_model_is_not_kept():
    machine = Machine.detect(threads=1)
    options = CompileOptions(threads=1)
    workloads = workloads_of(small_model(), options, machine)
    best = {}
    for work in workloads:
        (task,) = work.tasks
        slow = {**task.default, "tile_o": 1, "tile_p": 1}
        assert task.space.legal(slow) and slow != task.default
        best[work.key] = Record(work.key, task.recipe, task.version, slow, (1e-9,), machine=machine_fields(machine))
    judged = judge(small_model(), options, machine, workloads, best, "s")
    assert len(judged.verdicts) == 2 and all(new > 0 and old > 0 for new, old in judged.in_model.values())
    for verdict in judged.verdicts:
        new, old = judged.in_model[verdict.task]
        assert verdict.config is None or new < old  # a one-lane tile is slower, but no test asserts a time
    assert np.isfinite([x for pair in judged.in_model.values() for x in pair]).all()
