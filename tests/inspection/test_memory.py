"""The memory plan: what it says of a program, its picture, its errors."""

import re

import numpy as np
import pytest

import tvm_ext
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import ArtifactError, OptionError
from tvm_ext.frontend import zoo
from tvm_ext.inspection.memory import MemoryPlan

MODEL = zoo.mlp(inputs=24, hidden=(40, 40, 40), classes=5)


@pytest.fixture(scope="module")
def compiled():
    return tvm_ext.compile(MODEL, threads=1, cache=False)


def test_the_plan_says_what_lives_when(compiled):
    plan = tvm_ext.memory_plan(compiled)
    assert len(plan.launches) == compiled.report["launches"]
    assert max(map(plan.live, range(len(plan.launches)))) == plan.lower_bound <= plan.nbytes <= plan.no_reuse
    activations = [buffer for buffer in plan.buffers if not buffer.workspace]
    assert [(buffer.first, buffer.last) for buffer in activations] == [(0, 1), (1, 2), (2, 3)]
    assert all(buffer.nbytes == 40 * 4 for buffer in activations)
    assert plan.ratio >= 1.0


def test_no_two_buffers_meet(compiled):
    plan = tvm_ext.memory_plan(compiled)
    for buffer in plan.buffers:
        assert buffer.offset + buffer.nbytes <= plan.arena_bytes
        for other in plan.buffers:
            together = buffer.first <= other.last and other.first <= buffer.last
            apart = buffer.offset + buffer.nbytes <= other.offset or other.offset + other.nbytes <= buffer.offset
            assert buffer is other or not together or apart


def test_text_json_and_picture(compiled):
    plan = tvm_ext.memory_plan(compiled)
    assert "lower bound" in str(plan) and "activation" in str(plan)
    assert plan.as_dict()["ratio"] == round(plan.ratio, 4)
    assert len(re.findall("<title", plan.svg())) == len(plan.buffers)
    assert "arena" in plan._repr_html_()


def test_a_model_whose_one_kernel_writes_the_output_needs_nothing():
    plan = tvm_ext.memory_plan(zoo.mlp(inputs=8, hidden=(), classes=3), threads=1, cache=False)
    assert (plan.nbytes, plan.buffers, plan.ratio) == (0, (), 1.0)
    assert "0 bytes" in str(plan)


def test_a_batch_without_a_program():
    model = zoo.mlp(inputs=8, hidden=(16, 16))
    with pytest.raises(OptionError, match="no program for a batch of 3"):
        tvm_ext.memory_plan(model, batch=3, threads=1, cache=False)


def test_options_of_a_compiled_model(compiled):
    with pytest.raises(OptionError, match="compiled already"):
        tvm_ext.memory_plan(compiled, threads=1)


def test_a_report_without_a_plan():
    with pytest.raises(OptionError, match="has no memory plan"):
        MemoryPlan.of({}, "m")


def test_a_damaged_report_is_refused(compiled):
    whole = compiled.report["memory"]
    assert MemoryPlan.of({"memory": whole}, "m").launches == tuple(whole["steps"])
    buffer = {**whole["buffers"][0], "workspace": 1}
    for plan in ({}, 5, [], {**whole, "buffers": [buffer]}, {**whole, "bytes": None}, {**whole, "pooled": 1}):
        with pytest.raises(ArtifactError, match="'memory'"):
            MemoryPlan.of({"memory": plan}, "m")
    for programs in (5, [5], [[]]):
        with pytest.raises(ArtifactError, match="'programs'"):
            MemoryPlan.of({"programs": programs}, "m")


def test_the_model_still_agrees(compiled):
    x = np.random.default_rng(0).standard_normal((1, 24), dtype=np.float32)
    ((name, wanted),) = onnxruntime_outputs(MODEL, {"input": x}).items()
    for _ in range(2):
        np.testing.assert_allclose(compiled.run({"input": x})[name], wanted, rtol=1e-5, atol=1e-6)
