"""What is kept at the end of a session, with programs and times that are made up."""

import types

import pytest

from tests.onnx_graphs import two_products
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import RecordBook, machine_fields
from tvm_ext.tuning import verdict
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.in_model import Ratio
from tvm_ext.tuning.verdict import judge, why_elsewhere

MACHINE = Machine.detect(threads=1)
MODEL = two_products(33, 40, 64, 24)
WORK = workloads_of(MODEL, CompileOptions(threads=1), MACHINE)


def records(default=False):
    """Of each task one, other than the default or equal to it."""
    latest = {}
    for work in WORK:
        (task,) = work.tasks
        other = next(c for c in map(task.space.at, range(len(task.space))) if task.space.legal(c) and c != task.default)
        config = dict(task.default) if default else other
        latest[work.key] = Record(work.key, task.recipe, task.version, config, (1e-6,), machine=machine_fields(MACHINE))
    return latest


@pytest.fixture
def world(monkeypatch):
    """Programs are numbered; `inside` has each task's (tuned, untuned) seconds, `ratio` and `ok` are of the whole."""
    state = types.SimpleNamespace(programs=[], inside={}, ratio=0.9, ok=True, paired=0)

    def compile_model(proto, options):
        used = RecordBook.read(options.records).records if options.records else []
        state.programs.append([r.task for r in used])
        assert options.cache is False
        metadata = types.SimpleNamespace(model={"name": "small"})
        return types.SimpleNamespace(inputs=(), batches=(), number=len(state.programs), metadata=metadata)

    def task_seconds(models, inputs, owners):
        assert [m.number for m in models] == [2, 1] and set(owners.values()) == {w.key for w in WORK}
        return [{key: pair[side] for key, pair in state.inside.items()} for side in (0, 1)]

    def paired(final, untuned, inputs):
        state.paired += 1
        return Ratio(state.ratio, state.ratio, state.ratio, 15, (1.0, 1.0))

    monkeypatch.setattr(verdict, "compile_model", compile_model)
    monkeypatch.setattr(verdict, "task_seconds", task_seconds)
    monkeypatch.setattr(verdict, "paired", paired)
    monkeypatch.setattr(verdict, "verify", lambda final, proto, seed: types.SimpleNamespace(ok=state.ok, outputs=()))
    state.inside = {w.key: (1.0, 2.0) for w in WORK}
    return state


def decide(best):
    return judge(MODEL, CompileOptions(threads=1), MACHINE, WORK, best, "s1")


def test_records_equal_to_the_plan_need_no_verdict(world):
    judged = decide(records(default=True))
    assert judged.verdicts == () and judged.kept == set() and judged.ratio is None and world.programs == []
    assert decide({}).verdicts == ()


def test_what_is_faster_inside_the_model_is_kept(world):
    best = records()
    judged = decide(best)
    assert judged.kept == set(best) and judged.ratio.median == 0.9 and judged.checked.ok
    assert world.programs == [[], list(best)]  # the tuned program is the final one
    for row in judged.verdicts:
        assert (row.recipe, row.config) == (best[row.task].recipe, best[row.task].config)
        assert row.session == "s1" and row.machine == machine_fields(MACHINE)


def test_a_task_that_is_no_faster_inside_keeps_its_default(world):
    best = records()
    slow, fast = best
    world.inside = {slow: (1.99, 2.0), fast: (1.0, 2.0)}  # half a percent: less than timers scatter
    judged = decide(best)
    assert judged.kept == {fast} and world.programs == [
        [],
        [slow, fast],
        [fast],
    ]  # a third program has only what is kept
    refused = next(v for v in judged.verdicts if v.task == slow)
    assert refused.config is None and refused.recipe is None and refused.reason == "no faster inside the model"
    assert judged.in_model[slow] == (1.99, 2.0)


def test_nothing_faster_inside_is_not_timed_as_a_whole(world):
    world.inside = {w.key: (2.0, 2.0) for w in WORK}
    judged = decide(records())
    assert judged.kept == set() and judged.ratio is None and judged.checked is None and world.paired == 0
    assert len(judged.verdicts) == 2 and judged.reason == "no faster inside the model"


def test_a_task_that_was_not_timed_inside_is_not_kept(world):
    best = records()
    first, second = best
    world.inside = {second: (1.0, 2.0)}
    judged = decide(best)
    assert judged.kept == {second} and first not in judged.in_model and len(judged.verdicts) == 2


def test_of_a_wrong_program_nothing_is_kept_and_no_time_is_given(world):
    world.ok = False
    judged = decide(records())
    assert judged.kept == set() and judged.ratio is None and not judged.checked.ok and world.paired == 0
    assert {v.reason for v in judged.verdicts} == {"the whole model disagrees with onnxruntime"}
    assert all(v.config is None for v in judged.verdicts)


def test_of_a_model_that_is_no_faster_nothing_is_kept(world):
    world.ratio = 1.0
    judged = decide(records())
    assert judged.kept == set() and judged.ratio.median == 1.0
    assert all(v.reason.startswith("the whole model is no faster: 1.000") for v in judged.verdicts)


def test_servers_unlike_this_machine_are_not_judged_here():
    assert why_elsewhere(MACHINE) == ""
    assert "cores for 4096 threads" in why_elsewhere(MACHINE.with_threads(4096))
    assert "not a x86-64-v2" in why_elsewhere(Machine.detect("x86-64-v2", 1))
    assert "aarch64" in why_elsewhere(Machine.detect("aarch64-linux-gnu:cortex-a72", 1))
