"""Measuring on this machine: right and wrong candidates, hangs and crashes, and what is left behind."""

import math
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.schedules.kernels import make_group, matched
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.tuning.measure import LocalMeasurer, MeasureError, Measurement

from ..rounds import COLD
from .misbehaving import HANGS
from .processes import PATIENCE, Process, until
from .tasks import CALLS, PLUGIN, SECONDS, TOLD, GroupTask, MatmulTask, children, misbehaving, relu_group

pytestmark = pytest.mark.long
_LIMITS = {"build_timeout": PATIENCE, "run_timeout": PATIENCE, "cold": COLD}


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine.detect()


@pytest.fixture(scope="module")
def pool(machine: Machine) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(machine, 2, plugins=[PLUGIN], **_LIMITS) as measurer:
        yield measurer


def how(*names: str) -> list[dict[str, Any]]:
    return [{"how": name, "n": i} for i, name in enumerate(names)]


def by_number(measurements: Iterator[Measurement]) -> list[Measurement]:
    """One of each, in the order of the configurations."""
    results = sorted(measurements, key=lambda result: result.config["n"])
    assert [result.config["n"] for result in results] == list(range(len(results)))
    return results


def conv_group(*w_shape: int, x: tuple[int, ...], padding: int = 1) -> Any:
    def body(data: relax.Var, weight: relax.Var, bias: relax.Var) -> Any:
        y = yield relax.op.nn.conv2d(data, weight, padding=padding)
        z = yield relax.op.add(y, bias)
        yield relax.op.nn.relu(z)

    return make_group("relax.nn.conv2d", [x, w_shape, (1, w_shape[0], 1, 1)], body, constants=(1, 2))


@pytest.mark.parametrize(
    ("recipe", "channels"),
    [(Conv2dNCHWc(), (16, 17)), (Conv2dWinograd(), (32, 48))],
    ids=lambda x: getattr(x, "name", ""),
)
def test_points_of_a_recipe_are_right_and_timed(pool, machine, recipe, channels) -> None:
    group = conv_group(channels[1], channels[0], 3, 3, x=(1, channels[0], 11, 13))
    match = matched(recipe, group, machine)
    legal = [c for c in recipe.points(match, machine) if math.isfinite(recipe.cost(match, c, machine))]
    configs = legal[:: max(1, len(legal) // 5)][:6]
    results = list(pool.measure(GroupTask(group, recipe.name, machine), configs))
    assert sorted(map(str, configs)) == sorted(str(result.config) for result in results)
    for result in results:
        assert result.error == "", result
        assert result.costs
        assert all(cost > 0 for cost in result.costs)
        assert result.check is not None
        assert 0 < result.check < 1e-5
        assert result.seconds > 0


def test_a_wrong_kernel_has_no_time(pool, machine) -> None:
    right, wrong, unwritten = by_number(pool.measure(misbehaving(machine), how("right", "wrong", "nothing")))
    assert (right.error, right.check) == ("", 0.0)
    assert (wrong.error, wrong.costs) == ("wrong", ())
    assert "of the range" in wrong.detail
    assert (unwritten.error, unwritten.costs) == ("wrong", ())
    assert "NaN" in unwritten.detail


def test_what_misbehaves_costs_its_row_and_the_others_go_on(pool, machine, monkeypatch) -> None:
    """Two hang: kernels of a hundred numbers are built and run in far less than these seconds, also under load."""
    monkeypatch.setattr(pool, "_limits", replace(pool._limits, build_timeout=15, run_timeout=10))
    names = ["right", "hang in build", "right", "segfault", "bad schedule", "right", "hang in run", "exit", "right"]
    results = by_number(pool.measure(misbehaving(machine), how(*names)))
    assert [result.error for result in results] == [
        "", "build-timeout", "", "crash", "schedule", "", "run-timeout", "crash", "",
    ]  # fmt: skip
    assert "SIGSEGV" in results[3].detail
    assert "this loop cannot be split" in results[4].detail
    assert "exit code 7" in results[7].detail
    assert all(bool(result.costs) == (result.error == "") for result in results)


def test_a_worker_that_is_killed_costs_one_row_at_most(pool, machine) -> None:
    measured: list[Measurement] = []
    for result in pool.measure(misbehaving(machine), how(*["right"] * 24)):
        if not measured:
            for process in children():
                os.kill(process, signal.SIGKILL)
        measured.append(result)
    results = by_number(iter(measured))
    assert len(results) == 24
    assert {result.error for result in results} <= {"", "crash"}
    assert sum(result.error == "crash" for result in results) <= 2


def test_a_clear_loser_is_timed_once(pool, machine) -> None:
    (kept,) = pool.measure(misbehaving(machine), how("right"), best=1.0)
    (lost,) = pool.measure(misbehaving(machine), how("right"), best=1e-12)
    assert not kept.discarded
    assert lost.discarded
    assert len(lost.costs) == 1
    assert lost.error == ""


def test_a_function_of_ones_own(pool) -> None:
    configs = how("right", "wrong", "refuse", "other shape")
    right, wrong, refused, other = by_number(pool.measure(MatmulTask(), configs))
    assert (right.error, wrong.error, refused.error, other.error) == ("", "wrong", "schedule", "schedule")
    assert "no such tile" in refused.detail
    assert "changed the function's arguments" in other.detail


def test_a_reader_that_stops_leaves_a_pool_that_works(pool, machine) -> None:
    reading = pool.measure(misbehaving(machine), how(*["right"] * 6))
    next(reading)
    with pytest.raises(MeasureError, match="something else"):
        next(pool.measure(misbehaving(machine), how("right")))
    reading.close()
    assert [result.error for result in pool.measure(misbehaving(machine), how("right", "right"))] == ["", ""]


def test_builds_go_on_beside_kernels_of_fewer_threads(machine) -> None:
    serial = machine.with_threads(1)
    with LocalMeasurer(serial, 2, plugins=[PLUGIN], **_LIMITS) as measurer:
        results = by_number(measurer.measure(misbehaving(serial), how(*["right", "wrong", "bad schedule"] * 6)))
    assert [result.error for result in results] == ["", "wrong", "schedule"] * 6


@pytest.mark.parametrize("threads", [1, 2])
def test_those_close_to_the_fastest_are_timed_in_several_rounds(machine, threads) -> None:
    """The second is as fast as the first but for its first round; the fourth is not, whoever is built first; times are
    those told."""
    machine = machine.with_threads(threads)
    configs, orders = how(*["right", "right", "wrong", "right"] * 3), ((0, 1, 2, 3), (5, 7, 4, 6), (11, 10, 9, 8))
    with LocalMeasurer(machine, 1, plugins=[PLUGIN, TOLD], rounds=3, **_LIMITS) as measurer:
        for order in orders:
            measured = [*measurer.measure(misbehaving(machine), [configs[n] for n in order])]
            for result, n in zip(sorted(measured, key=lambda result: result.config["n"]), range(4), strict=True):
                rounds = (3, 3, 0, 1)[n]
                assert (result.config["n"] % 4, result.error, result.discarded) == (n, "" if rounds else "wrong", False)
                assert result.costs == tuple(seconds for seconds in SECONDS[n][:rounds] for _ in range(CALLS))


def test_a_candidate_may_name_another_recipe(pool, machine) -> None:
    class Either(GroupTask):
        def candidate(self, config: Mapping[str, Any]) -> dict[str, Any]:
            return dict(config)

    group = conv_group(48, 32, 3, 3, x=(1, 32, 11, 13))
    configs = [
        {"recipe": recipe.name, "config": recipe.default(matched(recipe, group, machine), machine)}
        for recipe in (Conv2dNCHWc(), Conv2dWinograd())
    ]
    results = list(pool.measure(Either(group, "conv2d_nchwc", machine), [*configs, {"recipe": "dense", "config": {}}]))
    by_recipe = {result.config["recipe"]: result for result in results}
    assert [by_recipe[name].error for name in ("conv2d_nchwc", "conv2d_winograd", "dense")] == ["", "", "schedule"]
    assert "does not take group" in by_recipe["dense"].detail
    checks = [by_recipe[name].check for name in ("conv2d_nchwc", "conv2d_winograd")]
    assert all(check is not None and check < 1e-5 for check in checks)


def test_an_unknown_recipe_is_said(pool, machine) -> None:
    with pytest.raises(MeasureError, match="no recipe 'none'"):
        list(pool.measure(GroupTask(relu_group(4), "none", machine), [{}]))


def test_closing_leaves_nothing(machine) -> None:
    before, files = set(children()), set(os.listdir(tempfile.gettempdir()))
    measurer = LocalMeasurer(machine, 1, plugins=[PLUGIN], **_LIMITS)  # of two, the one that hangs may be run first
    reading = measurer.measure(misbehaving(machine), how("right", "hang in run"))
    next(reading)
    folder = Path(measurer._folder.name)
    assert folder.exists()
    assert set(children()) - before
    measurer.close()
    reading.close()
    assert set(children()) <= before
    assert not folder.exists()
    assert not {f for f in set(os.listdir(tempfile.gettempdir())) - files if f.startswith("tvm-ext-measure")}
    with pytest.raises(MeasureError, match="closed"):
        list(measurer.measure(misbehaving(machine), how("right")))


def test_a_plugin_that_is_not_there_is_said(machine) -> None:
    measurer = LocalMeasurer(machine, 1, plugins=["no_such_module"])
    with measurer, pytest.raises(MeasureError, match="no_such_module"):
        list(measurer.measure(misbehaving(machine), how("right")))


_PARENT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from tests.tuning.measure.tasks import PLUGIN, children, misbehaving
from tvm_ext.core.machine import Machine
from tvm_ext.tuning.measure import LocalMeasurer
machine = Machine.detect()
measurer = LocalMeasurer(machine, 1, build_timeout=600, run_timeout=600, plugins=[PLUGIN])
next(measurer.measure(misbehaving(machine), [{"how": "right"}]))
print(*children(), flush=True)
list(measurer.measure(misbehaving(machine), [{"how": "hang in run"}]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(number, tmp_path) -> None:
    """The signal comes when the parent waits for a kernel: before, Python may be where it drops an exception."""
    hangs = tmp_path / "hangs"
    parent = Process("-c", _PARENT, **{HANGS: str(hangs)})
    try:
        worker = int(parent.line())
        until(hangs.exists, parent)
        parent.send(number)
        parent.wait()
        until(lambda: not _alive(worker))
    finally:
        parent.end()


def _alive(process: int) -> bool:
    """Whether it runs: what nobody has collected yet does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    "wrong", [{"workers": 0}, {"workers": 1.5}, {"rounds": 0}, {"build_timeout": 0}, {"run_timeout": -1}, {"cold": -1}]
)
def test_options_are_checked(machine, wrong) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        LocalMeasurer(machine, **wrong)


def test_measured_costs_have_a_median() -> None:
    assert Measurement({}, (3.0, 1.0, 2.0)).cost == 2.0
    assert np.isinf(Measurement({}, error="crash").cost)
