"""Sessions: what gets into the database, what does not, and what a session finds of the one before."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase

from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.schedule_database import FAILED_SECONDS, RECORDS, WORKLOADS, normalized
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.metaschedule import MetaScheduleDatabase, Trial, tune_kernels
from tvm_ext.tuning.metaschedule.session import batch_of

from ..rounds import COLD
from .in_process import InProcess, operands, run
from .kernels_to_tune import blocked_workload, matmul

MACHINE = Machine.detect(None, 2)


def tune(folder: Path, trials: int, measurer: Any = None, kernel: str = "dense", **options: Any) -> Any:
    measurer = measurer or InProcess(MACHINE, lambda number: 1.0 / number)
    return tune_kernels({"k": blocked_workload(kernel, MACHINE)}, MACHINE, folder, trials, measurer=measurer, **options)


def lines(folder: Path, name: str = RECORDS) -> list[Any]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def seconds_of(line: Any) -> list[float]:
    return list(line[1][1])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a session of six trials, to be read; `copy` is one to be changed."""
    folder, trials = tmp_path_factory.mktemp("session"), list[Trial]()
    summary = tune(folder, 6, progress=trials.append)
    assert (summary.trials, summary.kernels["k"].space, summary.kernels["k"].errors) == (6, "recipes", {})
    assert [t.number for t in trials] == [1, 2, 3, 4, 5, 6]
    assert trials[-1].best == pytest.approx(1 / 6)
    return folder


@pytest.fixture
def copy(session: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(session, tmp_path, dirs_exist_ok=True))


def test_the_database_is_a_standard_one(session: Path) -> None:
    stored = JSONDatabase(str(session / WORKLOADS), str(session / RECORDS))
    assert len(stored) == 6
    mod = normalized(blocked_workload("dense", MACHINE).function)
    best = stored.query_tuning_record(mod, MACHINE.target(), "main")
    assert float(best.run_secs[0]) == pytest.approx(1 / 6)


def test_the_best_schedule_is_found_again_bit_for_bit(tmp_path: Path) -> None:
    """Replayed by our reader, and by TVM's: the same module, and the same bits out of it."""
    tune(tmp_path, 5, kernel="conv2d_nchwc")
    function = blocked_workload("conv2d_nchwc", MACHINE).function
    lookup = MetaScheduleDatabase(tmp_path).find(function, MACHINE)
    assert lookup.seconds == pytest.approx(1 / 5)
    assert lookup.schedule is not None
    stored = JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    theirs = stored.query_schedule(normalized(function), MACHINE.target(), "main")
    assert tvm_ffi.structural_equal(lookup.schedule.mod, theirs.mod)
    arguments = operands(normalized(function)["main"])
    ours, again = (run(mod, arguments, MACHINE.target()) for mod in (lookup.schedule.mod, theirs.mod))
    assert ours.tobytes() == again.tobytes()
    np.testing.assert_allclose(ours, run(normalized(function), arguments, MACHINE.target()), rtol=1e-4, atol=1e-4)


def test_a_kernel_of_a_compile_is_found_whatever_its_attributes(session: Path) -> None:
    function = blocked_workload("dense", MACHINE).function
    noted = function.with_attr({"global_symbol": "matmul_3", "op_pattern": 8, "tvm_ext.recipe": "dense"})
    assert MetaScheduleDatabase(session).find(noted, MACHINE).schedule is not None


def test_a_wrong_candidate_is_a_failed_one(tmp_path: Path) -> None:
    """The third would be the fastest by far; it computes twice what it should."""
    measurer = InProcess(MACHINE, lambda number: 1e-9 if number == 3 else 1.0, spoil=twice_in_the_third)
    trials: list[Trial] = []
    summary = tune(tmp_path, 5, measurer, progress=trials.append)
    assert summary.kernels["k"].errors == {"wrong": 1}
    assert summary.kernels["k"].best == 1.0
    assert [t.error for t in trials] == ["", "", "wrong", "", ""]
    assert [seconds_of(line) for line in lines(tmp_path)][2] == [FAILED_SECONDS]
    schedule = MetaScheduleDatabase(tmp_path).find(blocked_workload("dense", MACHINE).function, MACHINE).schedule
    assert schedule is not None
    assert str(schedule.mod) not in measurer.wrong


def twice_in_the_third(number: int, mod: Any) -> Any:
    if number != 3:
        return mod
    main, result = mod["main"], mod["main"].params[-1]

    def double(store: Any) -> Any:
        if not store.buffer.same_as(result):
            return store
        return tvm.tirx.BufferStore(store.buffer, store.value * tvm.tirx.const(2, "float32"), store.indices)

    body = tvm_ffi.structural_map(main.body, (tvm.tirx.BufferStore, double))
    return tvm.ir.IRModule({"main": main.with_body(body)})


def test_kernels_that_only_fail_have_no_schedule(tmp_path: Path) -> None:
    tune(tmp_path, 2, InProcess(MACHINE, lambda _: 1.0, spoil=lambda number, mod: twice_in_the_third(3, mod)))
    lookup = MetaScheduleDatabase(tmp_path).find(blocked_workload("dense", MACHINE).function, MACHINE)
    assert lookup.schedule is None
    assert lookup.reason == "every candidate of this kernel failed"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ZeroDivisionError])
def test_a_session_that_is_stopped_goes_on(tmp_path: Path, stop: type[BaseException]) -> None:
    def progress(trial: Trial) -> None:
        if trial.number == 4:
            raise stop

    with pytest.raises(stop):
        tune(tmp_path, 10, progress=progress)
    assert len(lines(tmp_path)) == 4
    summary = tune(tmp_path, 5, InProcess(MACHINE, lambda _: 1.0), seed=1)
    assert (summary.kernels["k"].known, summary.trials) == (4, 5)
    assert summary.kernels["k"].best == pytest.approx(1 / 4)
    assert len(lines(tmp_path, WORKLOADS)) == 1
    traces = [json.dumps(line[1][0]) for line in lines(tmp_path)]
    assert len(traces) == len(set(traces)) == 9


def test_a_line_that_a_kill_cut_off_costs_that_line(copy: Path) -> None:
    text = (copy / RECORDS).read_text()
    (copy / RECORDS).write_text(text[:-40])
    database = MetaScheduleDatabase(copy)
    assert database.find(blocked_workload("dense", MACHINE).function, MACHINE).schedule is not None
    assert len(database.problems) == 1
    summary = tune(copy, 2)
    assert (summary.repaired, summary.kernels["k"].known) == (1, 5)
    assert len(lines(copy)) == 7


@pytest.mark.long
def test_a_small_space_is_used_up(tmp_path: Path) -> None:
    """No candidate is measured twice, in one session or in the next."""
    first = tune(tmp_path, 400)
    assert first.trials < 400
    traces = [json.dumps(line[1][0]) for line in lines(tmp_path)]
    assert len(set(traces)) == len(traces) == first.trials


def test_rules_tune_any_function_and_the_kernel_of_a_recipe(tmp_path: Path) -> None:
    function = matmul(16, 24, 8)
    kernels = {"mine": function, "k": blocked_workload("conv2d_nchwc", MACHINE)}
    summary = tune_kernels(kernels, MACHINE, tmp_path, 4, measurer=InProcess(MACHINE), space="rules")
    assert [(kernel.space, kernel.errors, kernel.trials) for kernel in summary.kernels.values()] == [
        ("rules", {}, 2)
    ] * 2
    assert summary.kernels["mine"].flops == 2 * 16 * 24 * 8
    assert MetaScheduleDatabase(tmp_path).find(function, MACHINE).schedule is not None


def test_nothing_is_printed_and_nothing_slow_imported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tune(tmp_path, 2)
    assert capfd.readouterr() == ("", "")
    assert "Trial #1" in (tmp_path / "metaschedule.log").read_text()
    assert "tvm.s_tir.tensor_intrin" not in sys.modules


@pytest.mark.parametrize(
    ("kernels", "options", "message"),
    [
        ({}, {}, "nothing to tune"),
        ({"k": None}, {"trials": 0}, "trials=0"),
        ({"k": None}, {"space": "all"}, "choose 'recipes' or 'rules'"),
    ],
)
def test_options_are_checked(tmp_path: Path, kernels: Any, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tune_kernels(kernels, MACHINE, tmp_path, options.pop("trials", 1), **options)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="file"):
        tune(tmp_path / "file" / "folder", 1)


@pytest.mark.long
def test_several_kernels_share_the_trials_of_a_measuring_pool(tmp_path: Path) -> None:
    kernels = {name: blocked_workload(name, MACHINE) for name in ("conv2d_nchwc", "conv2d_winograd", "batch_matmul")}
    with LocalMeasurer(MACHINE, cold=COLD) as pool:
        summary = tune_kernels(kernels, MACHINE, tmp_path, 12, measurer=pool)
    assert summary.trials == 12 and 0 < summary.measuring < summary.seconds
    assert all(kernel.trials > 0 and kernel.errors == {} for kernel in summary.kernels.values())
    assert len(lines(tmp_path, WORKLOADS)) == 3 and {line[0] for line in lines(tmp_path)} == {0, 1, 2}
    database = MetaScheduleDatabase(tmp_path)
    assert all(0 < database.find(kernel.function, MACHINE).seconds < 1 for kernel in kernels.values())


@pytest.mark.parametrize(
    ("trials", "kernels", "batch"), [(1, 1, 1), (6, 1, 6), (100, 1, 32), (120, 16, 7), (500, 16, 10), (3, 8, 1)]
)
def test_every_kernel_gets_a_batch(trials: int, kernels: int, batch: int) -> None:
    assert batch_of(trials, kernels) == batch


def test_records_of_another_machine_are_not_those_of_this_one(copy: Path) -> None:
    other = MACHINE.with_threads(1)
    kernels = {"k": blocked_workload("dense", MACHINE)}
    summary = tune_kernels(kernels, other, copy, 1, measurer=InProcess(other, lambda _: 7.0), space="rules")
    assert (summary.kernels["k"].known, summary.kernels["k"].best) == (0, 7.0)


def test_the_schedule_of_a_compile_is_the_first_candidate(tmp_path: Path) -> None:
    """Nothing slower than it is taken for it; and a second session does not measure it again."""
    workload = blocked_workload("dense", MACHINE)
    assert workload.default is not None
    mod = normalized(workload.function)
    expected = workload.default(Schedule(mod)).mod
    tune(tmp_path, 3, InProcess(MACHINE, lambda number: float(number)))
    lookup = MetaScheduleDatabase(tmp_path).find(workload.function, MACHINE)
    assert lookup.seconds == 1.0
    assert lookup.schedule is not None
    assert tvm_ffi.structural_equal(lookup.schedule.mod, expected)
    tune(tmp_path, 2, InProcess(MACHINE, lambda _: 0.5))
    traces = [json.dumps(line[1][0]) for line in lines(tmp_path)]
    assert len(set(traces)) == len(traces) == 5
