"""Kernels of a model, and their schedules back in its pipeline."""

from pathlib import Path

import numpy as np
import tvm_ffi
from tvm.ir import IRModule

from tests.onnx_graphs import model, node, random, residual_network, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.records.schedule_database import MetaScheduleDatabase, normalized
from tvm_ext.driver.programs import lower
from tvm_ext.passes.lowering.schedule_kernels import ScheduleKernels
from tvm_ext.tuning.metaschedule import kernels_of, tune_kernels

from .in_process import InProcess, operands, run, shape_of

MACHINE = Machine.detect(threads=2)
OPTIONS = CompileOptions(threads=2)


def small() -> object:
    """Two equal layers, another one, and a softmax."""
    weights = {"w": random(16, 16), "v": random(16, 16), "u": random(16, 24)}
    nodes = [
        node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "c"), node("Relu", "c", "d"),
        node("MatMul", "d u", "e"), node("Softmax", "e", "y", axis=-1),
    ]  # fmt: skip
    return model(nodes, [value("x", (9, 16))], [value("y", (9, 24))], weights)


def test_equal_kernels_are_one_with_the_weight_of_all_calls() -> None:
    kernels = kernels_of(small(), OPTIONS, MACHINE)
    assert [w.weight for w in kernels.values()] == [2, 1]
    assert all(w.designs for w in kernels.values())


def test_a_residual_network_has_its_convolutions() -> None:
    kernels = kernels_of(residual_network(), OPTIONS, MACHINE)
    assert sum(w.weight for w in kernels.values()) == 7  # 6 convolutions and the classifier


def test_schedules_are_found_by_the_kernels_of_a_compile(tmp_path: Path, monkeypatch) -> None:
    """In the pass that schedules them, a kernel of the compile finds the schedule of the one that was tuned."""
    kernels = kernels_of(small(), OPTIONS, MACHINE)
    tune_kernels(kernels, MACHINE, tmp_path, 8, measurer=InProcess(MACHINE, lambda number: 1.0 / number))
    database = MetaScheduleDatabase(tmp_path)
    seen: list[IRModule] = []
    original = ScheduleKernels.run
    monkeypatch.setattr(ScheduleKernels, "run", lambda self, mod, ctx: (seen.append(mod), original(self, mod, ctx))[1])
    scheduled = lower(small(), OPTIONS, MACHINE).mod
    (before,) = seen
    for name, workload in kernels.items():
        function = before[name]
        assert tvm_ffi.structural_equal(normalized(function), normalized(workload.function))
        default = scheduled[name]
        shape = shape_of(default.params[-1])
        record = database.find(function, MACHINE, shape)
        assert record.schedule is not None, record.reason
        arguments = operands(function)
        got = run(record.schedule.mod, arguments, MACHINE.target())
        expected = run(IRModule({"main": default.with_attr("global_symbol", "main")}), arguments, MACHINE.target())
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_result_of_another_shape_is_refused(tmp_path: Path) -> None:
    kernels = kernels_of(small(), OPTIONS, MACHINE)
    name, kernel = next(iter(kernels.items()))
    tune_kernels({name: kernel}, MACHINE, tmp_path, 2, measurer=InProcess(MACHINE))
    lookup = MetaScheduleDatabase(tmp_path).find(kernel.function, MACHINE, (16, 9))
    assert lookup.schedule is None
    assert "not (16, 9)" in lookup.reason
