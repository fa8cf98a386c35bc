"""Choice by measuring: which candidates, what is kept and followed, and that whatever fails leaves the default."""

import contextlib
import functools
import json
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tvm_ext
from tests.onnx_graphs import two_products
from tests.passes.stages import agrees
from tests.tuning.choosing import CONV, MACHINE, MATMULS, OPTIONS, Fake, Nothing, groups, recorded
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config, config_text
from tvm_ext.core.records.record_book import RecordBook, machine_fields
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.driver import records as driver
from tvm_ext.driver.cache import Cache, CacheWarning
from tvm_ext.driver.compile import compile_model
from tvm_ext.driver.records import timing_log
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.tuning import choose
from tvm_ext.tuning.candidates import MOST, Candidates, candidate
from tvm_ext.tuning.choose import measure_choices
from tvm_ext.tuning.measure import MeasureError, Measurement, TaskError
from tvm_ext.verification.verify import verify

pytestmark = pytest.mark.usefixtures("cache_folder")


def compiled(proto: Any = MATMULS, options: CompileOptions = OPTIONS) -> list[dict[str, Any]]:
    """The kernels that recipes chose, as the cache says, with nothing measured; the outputs are onnxruntime's."""
    return [kernel for kernel in report(proto, options)["kernels"] if kernel["choice"]]


def report(proto: Any = MATMULS, options: CompileOptions = OPTIONS) -> dict[str, Any]:
    program = compile_model(proto, replace(options, cache=False))
    assert verify(program, proto).ok
    return dict(program.report)


def book() -> RecordBook:
    return RecordBook.read([timing_log(MACHINE)])


@functools.cache
def default_of(proto_name: str = "matmuls") -> dict[TaskKey, str]:
    return {g.work.key: config_text(g.default) for g in groups({"matmuls": MATMULS, "conv": CONV}[proto_name])}


def favouring(number: int) -> Callable[[TaskKey, Config], float]:
    """The candidate of this place in the queue is the fastest of each group by a tenth."""
    fast = {(g.work.key, config_text(g.queue[number])) for g in groups()}
    return lambda key, config: 0.9e-3 if (key, config_text(config)) in fast else 1e-3


# ------------------------------------------------------------------------------------------------ what is followed
def test_the_fastest_is_followed_and_the_report_says_why() -> None:
    fake = Fake(favouring(1))
    measure_choices(MATMULS, OPTIONS, fake)
    kernels = compiled()
    for group in groups():
        kernel = next(k for k in kernels if k["choice"].get("candidates") and _is(k, group))
        assert kernel["config"] == group.queue[1]["config"] and kernel["record"]
        choice = kernel["choice"]
        assert choice["by"] == "measure" and choice["reason"] == "measured to be faster than the default"
        assert (choice["seconds"], choice["default_seconds"]) == (0.9e-3, 1e-3)
        assert 3 <= choice["measured"] == choice["candidates"]
    assert all(record.machine == machine_fields(MACHINE) for record in book().records)


def _is(kernel: dict[str, Any], group: Candidates) -> bool:
    return any(set(site) & set(kernel["nodes"]) for site in group.work.calls)


def test_another_recipe_may_win() -> None:
    measure_choices(CONV, OPTIONS, Fake(lambda key, config: 1e-3 if config["recipe"] == "conv2d_winograd" else 0.5e-3))
    (kernel,) = [k for k in compiled(CONV) if k["choice"].get("candidates")]
    assert kernel["recipe"] == "conv2d_nchwc" and kernel["choice"]["by"] == "measure"


def test_what_is_no_faster_beyond_the_noise_leaves_the_default() -> None:
    measure_choices(MATMULS, OPTIONS, Fake(lambda key, config: 1e-3 * (1 - 1e-3 * (len(config_text(config)) % 7))))
    for kernel in compiled():
        assert kernel["choice"]["reason"] == "no candidate is faster beyond the noise"
        assert kernel["choice"]["by"] == "measure"
    estimated = CompileOptions(threads=2, records=None)
    assert [k["config"] for k in compiled()] == [k["config"] for k in compiled(options=estimated)]


def test_a_default_that_was_disturbed_the_first_time_is_measured_again() -> None:
    calls: list[str] = []
    (default,) = {config_text(groups(CONV)[0].default)}

    def seconds(key: TaskKey, config: Config) -> float:
        calls.append(config_text(config))
        if config_text(config) == default:
            return 2e-3 if calls.count(default) == 1 else 1e-3
        return 1.1e-3

    measure_choices(CONV, OPTIONS, Fake(seconds))
    (kernel,) = [k for k in compiled(CONV) if k["choice"].get("candidates")]
    assert calls.count(default) >= 2 and config_text(candidate(kernel["recipe"], kernel["config"])) == default


# ------------------------------------------------------------------------------------------------ inside the model
@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_a_kernel_that_is_no_faster_inside_the_model_is_the_default_again(
    ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs: list[list[Config]] = []

    def inside(tuned: CompiledModel, untuned: CompiledModel, workloads: Any, inputs: Any) -> dict[TaskKey, Any]:
        programs.extend([kernel["config"] for kernel in program.report["kernels"]] for program in (tuned, untuned))
        assert tuned.run(inputs).keys() == untuned.run(inputs).keys()
        return {work.key: (1e-3 * ratio, 1e-3) for work in workloads}

    monkeypatch.setattr(choose, "LocalMeasurer", lambda *args, **named: contextlib.nullcontext(Fake(favouring(1))))
    monkeypatch.setattr(choose, "seconds_inside", inside)
    measure_choices(MATMULS, OPTIONS)
    tuned, untuned = programs
    assert tuned != untuned
    kernels = compiled()
    assert [kernel["config"] for kernel in kernels] == (tuned if ratio < 1 else untuned)
    for choice in (kernel["choice"] for kernel in kernels):
        assert (choice["model_seconds"], choice["default_model_seconds"]) == (1e-3 * ratio, 1e-3)
        assert choice["by"] == "measure" and choice["seconds"] == (0.9e-3 if ratio < 1 else 1e-3)


def test_what_cannot_be_timed_inside_the_model_is_chosen_alone_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def inside(*args: Any) -> Any:
        raise InputError("no random values are defined of it")

    monkeypatch.setattr(choose, "LocalMeasurer", lambda *args, **named: contextlib.nullcontext(Fake(favouring(1))))
    monkeypatch.setattr(choose, "seconds_inside", inside)
    measure_choices(MATMULS, OPTIONS)
    for kernel in compiled():
        assert kernel["choice"]["seconds"] == 0.9e-3 and "no random values" in kernel["choice"]["reason"]


# ------------------------------------------------------------------------------------------------ the cache
def test_a_second_time_all_is_in_the_cache() -> None:
    measure_choices(MATMULS, OPTIONS, Fake(favouring(1)))
    before, first = timing_log(MACHINE).read_bytes(), compiled()
    measure_choices(MATMULS, OPTIONS, Nothing())
    measure_choices(MATMULS, replace(OPTIONS, seconds=1.0, cache=False), Nothing())
    assert timing_log(MACHINE).read_bytes() == before and compiled() == first


def test_groups_of_another_model_are_known_too() -> None:
    measure_choices(MATMULS, OPTIONS, Fake(favouring(1)))
    fake, known = Fake(favouring(1)), {(r.task, config_text(candidate(r.recipe, r.config))) for r in book().records}
    measure_choices(two_products(64, 96, 256, 8, seed=9), OPTIONS, fake)
    assert not [task for task in fake.seen if task in known and task[1] not in _held()]
    assert len(book().records) <= 2 * MOST + len(fake.batches)


def _held() -> set[str]:
    """Candidates that are measured beside others: the best and the default of each group."""
    return {config_text(candidate(v.recipe, v.config)) for v in book().verdicts} | set(default_of().values())


def test_equal_measurements_give_equal_choices(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for number in range(2):
        monkeypatch.setenv("TVM_EXT_CACHE", str(cache_folder / str(number)))
        fake = Fake(favouring(1))
        measure_choices(MATMULS, OPTIONS, fake)
        chosen.append((fake.seen, [(v.task, v.recipe, v.config, v.facts, v.reason) for v in book().verdicts]))
    assert chosen[0] == chosen[1]


def test_times_of_another_machine_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_choices(MATMULS, OPTIONS, Fake(favouring(1)))
    path = timing_log(MACHINE)
    own = json.dumps(machine_fields(MACHINE)["cpu"])
    path.write_text(path.read_text().replace(own, '"another"'))
    assert {kernel["choice"]["by"] for kernel in compiled()} == {"estimate"}
    monkeypatch.setattr(driver, "host_identity", lambda: "another")
    assert timing_log(MACHINE) != path
    assert len({timing_log(m) for m in (MACHINE, MACHINE.with_threads(1), replace(MACHINE, l3=1 << 20))}) == 3


def test_a_record_of_another_machine_is_a_candidate_and_wins_only_here(tmp_path: Path) -> None:
    one = recorded({**machine_fields(MACHINE), "cpu": "another"})
    log = tmp_path / "elsewhere.json"
    log.write_text(one.to_row() + "\n")
    options = replace(OPTIONS, records=(str(log),))
    estimated = report(options=CompileOptions(threads=2, records=str(log)))
    reasons = [why for p in estimated["passes"] if p["name"] == "choose-recipes" for _, why in p["skipped"]]
    assert [why for why in reasons if "recorded on another machine" in why and "candidate" in why]
    assert not any(kernel["record"] for kernel in estimated["kernels"])
    measure_choices(MATMULS, options, Fake(lambda key, c: 0.5e-3 if c["config"] == one.config else 1e-3))
    chosen = [k for k in compiled(options=options) if k["config"] == one.config]
    assert len(chosen) == 1 and chosen[0]["choice"]["by"] == "measure"


def test_the_program_cache_follows_the_timing_cache() -> None:
    def program() -> list[Config]:
        compiled = tvm_ext.compile(MATMULS, threads=2, choose="measure", seconds=1000)
        return [kernel["config"] for kernel in compiled.report["kernels"]]

    measure_choices(MATMULS, OPTIONS, Fake(favouring(0)))
    first = program()
    assert program() == first and len(Cache().ls()) == 1 and Cache().timings() == [timing_log(MACHINE)]
    timing_log(MACHINE).unlink()
    measure_choices(MATMULS, OPTIONS, Fake(favouring(1)))
    assert program() != first and len(Cache().ls()) == 2
    Cache().clear()
    assert not Cache().timings() and not Cache().ls()


# ------------------------------------------------------------------------------------------------ the budget
@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """A clock that a batch puts forward by two seconds."""
    state = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(choose, "time", types.SimpleNamespace(monotonic=lambda: state.now, time=lambda: state.now))
    measure = Fake.measure

    def slow(self: Fake, *args: Any, **changes: Any) -> Iterator[Measurement]:
        state.now += 2.0
        return measure(self, *args, **changes)

    monkeypatch.setattr(Fake, "measure", slow)
    yield state


def test_what_is_worth_most_is_measured_first_and_the_rest_is_said(clock: types.SimpleNamespace) -> None:
    fake, (large, small) = Fake(), groups()
    options = replace(OPTIONS, seconds=2.0)
    measure_choices(MATMULS, options, fake)
    assert fake.batches == [large.work.key]
    facts = {_is(k, large): k["choice"] for k in compiled(options=options)}
    assert facts[True]["measured"] == 1 + min(choose.BATCH, len(large.queue)) <= facts[True]["candidates"]
    assert facts[False] == {"by": "estimate", "reason": "no time left of 2 s", "measured": 0,
                            "candidates": 1 + len(small.queue)}  # fmt: skip
    measure_choices(MATMULS, options, Nothing())
    more = Fake()
    measure_choices(MATMULS, replace(OPTIONS, seconds=6.0), more)
    assert len(more.batches) == 3 and small.work.key in more.batches
    again = [task for task in more.seen if task in fake.seen]
    assert {text for _, text in again} <= set(default_of().values())


def test_it_ends_when_nothing_is_left(clock: types.SimpleNamespace) -> None:
    fake = Fake()
    measure_choices(MATMULS, OPTIONS, fake)
    assert clock.now < 200
    assert max(sum(key == group.work.key for key, _ in fake.seen) for group in groups()) <= 2 * MOST
    measure_choices(MATMULS, replace(OPTIONS, seconds=1e6), Nothing())  # complete, whatever time there is


# ------------------------------------------------------------------------------------------------ failures
def test_workers_that_do_not_start_leave_the_default_and_are_asked_again() -> None:
    broken = Fake(raises={"relax.matmul": MeasureError("a worker process does not start: exit code 1")})
    measure_choices(MATMULS, OPTIONS, broken)
    for kernel in compiled():
        assert kernel["choice"]["by"] == "estimate" and "does not start" in kernel["choice"]["reason"]
    fake = Fake(favouring(1))
    measure_choices(MATMULS, OPTIONS, fake)
    assert fake.batches and {kernel["choice"]["by"] for kernel in compiled()} == {"measure"}


def test_a_group_that_cannot_be_measured_says_so() -> None:
    measure_choices(MATMULS, OPTIONS, Fake(raises={"relax.matmul": TaskError("task x: no finite number")}))
    assert {k["choice"]["reason"] for k in compiled()} == {"task x: no finite number"}
    measure_choices(MATMULS, OPTIONS, Nothing())


@pytest.mark.parametrize("error", ["crash", "run-timeout", "build", "wrong"])
def test_candidates_that_fail_are_never_chosen(error: str) -> None:
    defaults = set(default_of().values())
    measure_choices(
        MATMULS, OPTIONS, Fake(lambda k, c: 1e-9, lambda config: "" if config_text(config) in defaults else error)
    )
    for kernel in compiled():
        assert kernel["choice"]["measured"] == 1 < kernel["choice"]["candidates"]
        assert kernel["choice"]["reason"] == "no candidate is faster beyond the noise"


def test_all_that_fails_leaves_the_default_with_the_reason() -> None:
    measure_choices(MATMULS, OPTIONS, Fake(fault=lambda config: "crash"))
    for kernel in compiled():
        assert kernel["choice"]["by"] == "estimate" and "crash: as the test wants it" in kernel["choice"]["reason"]


def test_an_interruption_keeps_what_was_measured() -> None:
    fake = Fake(favouring(0), raises={})
    fake._fault = _interrupt_after(fake, 8)
    with pytest.raises(KeyboardInterrupt):
        measure_choices(MATMULS, OPTIONS, fake)
    assert len(book().records) == 8 and len(book().verdicts) == 2
    measure_choices(MATMULS, OPTIONS, more := Fake(favouring(0)))
    assert more.batches and {kernel["choice"]["by"] for kernel in compiled()} == {"measure"}


def _interrupt_after(fake: Fake, count: int) -> Callable[[Config], str]:
    def fault(config: Config) -> str:
        if len(fake.seen) > count:
            raise KeyboardInterrupt
        return ""

    return fault


def test_another_architecture_is_refused() -> None:
    options = CompileOptions(target="aarch64-linux-gnu:cortex-a72", choose="measure")
    with pytest.raises(OptionError, match="nothing can be measured here"):
        measure_choices(MATMULS, options, Nothing())


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning, match="estimates decide"):
        measure_choices(MATMULS, OPTIONS, Fake())
    assert {kernel["choice"]["by"] for kernel in compiled()} == {"estimate"}


# ------------------------------------------------------------------------------------------------ for real
@pytest.mark.long
def test_a_convolution_is_measured_by_workers_with_both_recipes() -> None:
    """Within more time than a busy machine takes: it ends when nothing is left to measure."""
    program = agrees(CONV, choose="measure", seconds=40.0, threads=2)
    (kernel,) = [k for k in program.report["kernels"] if k["choice"].get("candidates")]
    assert kernel["choice"]["by"] == "measure" and kernel["choice"]["measured"] >= 2
    records = book().records
    assert {r.recipe for r in records} >= {"conv2d_winograd", "conv2d_nchwc"}
    assert all(r.check is not None and r.check < 1e-5 for r in records if not r.error)
    assert any(len(r.costs) > 10 for r in records), "the close ones are timed in several rounds"
    assert agrees(CONV, choose="measure", seconds=40.0, threads=2).report["kernels"] == program.report["kernels"]
