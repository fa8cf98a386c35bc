"""schedule-kernels: once a kernel, and a recipe that fails is named with what it failed on."""

from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import Stage, agrees, primfuncs, stage
from tvm_ext.core.errors import PassError
from tvm_ext.core.instruments import Instruments, Switches
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.schedule_database import RECORDS, WORKLOADS, MetaScheduleDatabase, normalized
from tvm_ext.passes.lowering.assign_layouts import AssignLayouts
from tvm_ext.passes.lowering.schedule_kernels import ScheduleKernels, metaschedule_record
from tvm_ext.schedules.recipes.softmax import Softmax

TWICE = model(
    [node("Softmax", "x", "a"), node("MatMul", "a w", "b"), node("Softmax", "b", "y")],
    [value("x", (4, 6))], [value("y", (4, 6))], {"w": random(6, 6)},
)  # fmt: skip


def test_a_kernel_called_twice_is_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled, schedule = [], Softmax.schedule

    def count(self: Softmax, sch: Any, *args: Any, **kwargs: Any) -> None:
        scheduled.append(sch)
        schedule(self, sch, *args, **kwargs)

    monkeypatch.setattr(Softmax, "schedule", count)
    staged = stage(TWICE, ScheduleKernels)
    assert staged.calls == ["softmax", "matmul", "softmax"] and len(scheduled) == 1
    assert staged.fired == {"softmax": "scheduled by softmax", "matmul": "scheduled by dense"}
    agrees(TWICE)


def test_the_functions_of_before_are_gone() -> None:
    before, after = stage(TWICE, AssignLayouts), stage(TWICE, ScheduleKernels)
    assert before.calls == after.calls
    assert {g.name_hint for g in before.mod.get_global_vars()} == {g.name_hint for g in after.mod.get_global_vars()}


def test_a_recipe_that_fails_is_named_with_kernel_and_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Softmax, sch: Any, *args: Any, **kwargs: Any) -> None:
        raise ValueError("loop 3 of 2\nand the whole module after it")

    monkeypatch.setattr(Softmax, "schedule", fail)
    with pytest.raises(PassError) as error:
        stage(TWICE, ScheduleKernels)
    wanted = "recipe 'softmax' cannot schedule kernel 'softmax' with {\"threads\": 1} at node "
    assert error.value.message.startswith(wanted) and error.value.message.endswith(": ValueError: loop 3 of 2")


SOFTMAX = model([node("Softmax", "x", "y")], [value("x", (5, 7))], [value("y", (5, 7))])


def database(folder: Path, threads: int = 2, kernel: str = "softmax", source: Any = TWICE) -> MetaScheduleDatabase:
    """One record: the kernel of a model as it is, its first loop split by two."""
    mod = normalized(primfuncs(stage(source, AssignLayouts).mod)[kernel])
    stored = JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    workload, sch = stored.commit_workload(mod), Schedule(mod)
    block = sch.get_child_blocks(sch.get_sblock("root"))[0]
    sch.split(sch.get_loops(block)[0], [None, 2])
    target = Machine.detect(threads=threads).target()
    stored.commit_tuning_record(TuningRecord(sch.trace, workload, [2.5e-6], target, None))
    return MetaScheduleDatabase(folder)


def scheduled(schedules: MetaScheduleDatabase | None, source: Any = TWICE) -> Stage:
    before = stage(source, AssignLayouts)
    before.ctx.schedules = schedules
    result = ScheduleKernels()(before.mod, before.ctx)
    return Stage(result.mod, before.ctx)


def test_a_schedule_of_a_database_goes_before_the_recipes(tmp_path: Path) -> None:
    plain, schedule = scheduled(None), scheduled(database(tmp_path))
    assert schedule.fired == {
        "softmax": "scheduled by MetaSchedule, which measured 2.5 us", "matmul": "scheduled by dense",
    }  # fmt: skip
    assert {n: k.record for n, k in schedule.ctx.kernels.items()} == {"softmax": "MetaSchedule", "matmul": ""}
    assert any("matmul: no record of this kernel" in why for why in schedule.skipped.values())
    ours, theirs = primfuncs(plain.mod), primfuncs(schedule.mod)
    assert not tvm_ffi.structural_equal(ours["softmax"], theirs["softmax"])
    assert tvm_ffi.structural_equal(ours["matmul"], theirs["matmul"])
    assert not plain.skipped and schedule.calls == plain.calls
    agrees(TWICE, records=tmp_path)


def test_a_record_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "threads").mkdir()
    (tmp_path / "shape").mkdir()
    schedule = scheduled(database(tmp_path / "threads", threads=3))
    assert schedule.fired == {"softmax": "scheduled by softmax", "matmul": "scheduled by dense"}
    assert any("another number of threads: 3, not 2" in why for why in schedule.skipped.values())
    assert not any(kernel.record for kernel in schedule.ctx.kernels.values())
    other = scheduled(database(tmp_path / "shape", source=SOFTMAX))
    assert any("softmax: no record of this kernel" in why for why in other.skipped.values())


def test_a_schedule_of_a_database_can_be_switched_off(tmp_path: Path) -> None:
    before = stage(TWICE, AssignLayouts)
    before.ctx.schedules = database(tmp_path)
    off = Switches(records=frozenset({metaschedule_record(before.ctx.kernels["softmax"])}))
    before.ctx.instruments = Instruments(switches=off)
    staged = Stage(ScheduleKernels()(before.mod, before.ctx).mod, before.ctx)
    assert staged.fired["softmax"] == "scheduled by softmax"
    assert any("switched off" in why for why in staged.skipped.values())
