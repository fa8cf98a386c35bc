"""schedule-kernels: once a kernel, and a recipe that fails is named with what it failed on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.onnx_graphs import model, node, random, value
from tests.passes.lowering import agrees, stage
from tvm_ext.core.errors import PassError
from tvm_ext.passes.assign_layouts import AssignLayouts
from tvm_ext.passes.schedule_kernels import ScheduleKernels
from tvm_ext.schedules.softmax import Softmax

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
    found = stage(TWICE, ScheduleKernels)
    assert found.calls == ["softmax", "matmul", "softmax"] and len(scheduled) == 1
    assert found.fired == {"softmax": "scheduled by softmax", "matmul": "scheduled by dense"}
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
    wanted = "recipe 'softmax' cannot schedule kernel 'softmax' with {\"threads\": 1}: ValueError: loop 3 of 2"
    assert error.value.message == wanted
