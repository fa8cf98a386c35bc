"""A workbench in this process: tasks of every stored dtype are built, run and checked."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulation.execution import tile_instructions
from tests.schedules.narrow import needs
from tests.schedules.recurrences import Case
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.tuning.measure.timing import Repeats
from tvm_ext.tuning.measure.workbench import Failed, Workbench

from .misbehaving import RECIPES
from .stored_tasks import DOTS, INSTRUCTIONS, TILES, Stored, stored
from .tasks import GroupTask, relu_group

KINDS = ("bf16", "u8", "s8")


def measured(stored: Stored, folder: Path) -> tuple[list[dict[str, Any]], np.ndarray]:
    """What a workbench answers for each configuration, and the bits of the reference."""
    bench = Workbench(stored.machine, 0.5, Repeats(2, 0.01))
    path = str(folder / "reference.npz")
    bench.load("task", stored.task.describe())
    bench.save_reference("task", path)
    answers = []
    for number, config in enumerate(stored.configs):
        bench.build(number, "task", {"config": config})
        answers.append(bench.run(number, path, math.inf))
    with np.load(path) as saved:
        return answers, saved[saved.files[0]]


def check(stored: Stored, folder: Path) -> None:
    answers, reference = measured(stored, folder)
    assert len(answers) == len(stored.configs) > 0
    assert all(len(answer["costs"]) and not answer["discarded"] for answer in answers)
    assert all(answer["check"] < 0.01 for answer in answers)
    assert len(np.unique(reference)) > 20, "a reference of few values finds no error"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", TILES, ids=lambda recipe: recipe.name)
def test_tasks_of_tile_registers(recipe: Recipe, kind: str, tmp_path: Path) -> None:
    with tile_instructions() as amx:
        check(stored(recipe, kind), tmp_path)
    amx.assert_entered(INSTRUCTIONS[kind])


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs["bf16" if kind == "bf16" else "int8"]) for kind in KINDS]
)
@pytest.mark.parametrize("recipe", DOTS, ids=lambda recipe: recipe.name)
def test_tasks_of_dot_products(recipe: Recipe, kind: str, tmp_path: Path) -> None:
    check(stored(recipe, kind), tmp_path)


def test_a_recurrence_of_many_steps_does_not_drift(tmp_path: Path) -> None:
    """Sums in another order differ by what roundings make, not by what steps make of those."""
    case, machine = Case("RNN", (100, 2, 37), np.random.default_rng(0)), Machine.detect(None, 1)
    point = {"lanes": machine.lanes, "threads": 1, "share": "rows"}
    configs = [{**point, "blocks": blocks, "rows": rows} for blocks, rows in ((1, 1), (3, 2))]
    check(Stored(GroupTask(case.group, "recurrent", machine), machine, configs), tmp_path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float32", "int32", "float64"])
def test_a_wrong_kernel_of_any_dtype_is_found(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_ext.tuning.measure import programs

    monkeypatch.setattr(programs, "_added", list(RECIPES))
    machine = Machine.detect(None, 1)
    task = GroupTask(relu_group(3, 37, dtype=dtype), "misbehaving", machine)
    (right,), _ = measured(Stored(task, machine, [{"how": "right"}]), tmp_path)
    assert right["check"] == 0.0
    for how in ("nothing",) if dtype == "int32" else ("wrong", "nothing"):  # small integers are not negative
        with pytest.raises(Failed) as failed:
            measured(Stored(task, machine, [{"how": how}]), tmp_path)
        assert failed.value.error == "wrong"
