"""Launches, alone and together: shares, rates, roofs, by closed forms."""

from dataclasses import replace

import pytest

from tests.emulation.execution import MACHINE, tile_instructions
from tests.inspection.profile.fakes import CODE, ROOFS, around, launch, profile, sample
from tests.schedules.narrow import needs
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.inspection.profile.launch import Launch, launches_of, with_seconds
from tvm_ext.inspection.profile.roofs import RoofMeter
from tvm_ext.inspection.profile.rows import Work, total
from tvm_ext.runtime.plain import read
from tvm_ext.schedules.dots.instructions import dot_of


def test_what_is_not_known_stays_unknown():
    assert total([Work(1, 2), Work(3, 4)]) == Work(4, 6)
    assert total([Work(1, 2), Work(None, 4)]) == Work(None, 6)
    assert total([]) == Work(0, 0)
    assert Work(8, 2).intensity == 4 and Work(None, 2).intensity is None and Work(8, 0).intensity is None


def test_a_launch_bound_by_compute():
    (row,) = profile([launch(1, "dense", ["fc"], around(2e-3))]).rows()
    assert (row.median, row.gflops, row.of_peak, row.of_roof) == pytest.approx((2e-3, 50.0, 0.5, 0.5))
    assert (row.gbs, row.of_bandwidth) == pytest.approx((0.5, 0.05))
    assert row.bound == "compute" and row.share == pytest.approx(1 / 1.1) and row.least == min(around(2e-3))


def test_a_launch_bound_by_memory_may_be_faster_than_memory():
    (row,) = profile([launch(1, "add", ["add"], [1e-3], executed=1e6, flops=1e6, bytes=20_000_000)]).rows()
    assert row.bound == "memory" and row.of_roof == row.of_bandwidth == pytest.approx(2.0)


def test_rates_are_of_what_is_stated_and_parts_of_what_is_executed():
    (row,) = profile([launch(1, "winograd", ["conv"], [1e-3], flops=4e8, executed=1e8)]).rows()
    assert row.gflops == pytest.approx(400) and row.of_peak == pytest.approx(1.0)


#: The machine of round numbers, which does eight times as many operations by dot products.
DOTS = replace(ROOFS, instructions={"vpdpbusd": 800e9})


def test_products_have_the_peak_of_their_instruction():
    """8e8 operations take 1 ms at the peak of dot products, and 8 at that of multiply-adds."""
    dot = launch(1, "dot", ["conv"], [2e-3], executed=8e8, instruction="vpdpbusd")
    (row,) = profile([dot], roofs=DOTS).rows()
    assert (row.peak, row.of_peak, row.of_roof, row.bound) == (800e9, 0.5, 0.5, "compute")
    (plain,) = profile([replace(dot, instruction="")], roofs=DOTS).rows()
    assert (plain.peak, plain.of_peak) == (100e9, 4.0)
    (unknown,) = profile([dot]).rows()  # of a profile before instructions were measured
    assert (unknown.peak, unknown.of_peak) == (100e9, 4.0)


def test_launches_of_two_instructions_have_the_peak_of_both_one_behind_the_other():
    launches = [launch(1, "a", ["x"], [1e-3]), launch(2, "b", ["x"], [3e-3], executed=8e8, instruction="vpdpbusd")]
    (row,) = profile(launches, roofs=DOTS).rows("node")
    assert row.of_peak == pytest.approx(0.5) and row.peak == pytest.approx(9e8 / 2e-3)


def test_what_fits_below_memory_with_multiply_adds_may_not_with_dot_products():
    """4e8 operations on 2e7 bytes: 4 ms, or half a millisecond, beside 2 of memory."""
    both = [launch(n, "k", ["x"], [5e-3], executed=4e8, bytes=20_000_000, instruction=name)
            for n, name in ((1, ""), (2, "vpdpbusd"))]  # fmt: skip
    assert [row.bound for row in profile(both, roofs=DOTS).rows()] == ["compute", "memory"]
    assert DOTS.seconds(4e8, 2e7, instruction="vpdpbusd") == pytest.approx(2e-3) and DOTS.seconds(4e8, 2e7) == 4e-3


def test_unknown_work_has_no_rates():
    row = sample().rows()[4]
    assert (row.gflops, row.of_peak, row.of_roof, row.bound) == (None, None, None, "")
    assert row.gbs == pytest.approx(1.0)


def test_launches_of_a_kernel_together():
    rows = {row.label: row for row in sample().rows("kernel")}
    dense = rows["dense"]
    assert dense.launches == (1, 3) and dense.nodes == ("relu", "fc1", "fc2")
    assert dense.median == pytest.approx(4.5e-3) and dense.work.flops == 2e8
    assert dense.config == {"tile": 4} and dense.code == CODE and dense.record == ""  # one follows a record, one not


def test_a_recipe_and_nodes_together():
    assert [row.label for row in sample().rows("recipe")] == ["dense", "concat", "offload:npu", "generic"]
    twice = profile([launch(1, "transform", ["b", "a"], [1e-3]), launch(2, "dense", ["a", "b"], [1e-3])])
    (row,) = twice.rows("node")
    assert row.kernels == ("transform", "dense") and row.config == {} and row.code is None


def test_the_longest_come_first_when_only_some_are_wanted():
    assert [row.launches for row in sample().rows(top=2)] == [(4,), (3,)]


def test_an_unknown_grouping_names_the_choices():
    with pytest.raises(OptionError, match="group_by='layer': choose one of 'launch', 'kernel', 'recipe', 'node'"):
        sample().rows("layer")


def test_call_sites_go_by_the_order_of_the_run():
    report = {
        "kernels": [
            {"name": "a", "recipe": "dense", "call_sites": [["x"], ["y", "z"]], "config": {"t": 1}, "flops": 8.0,
             "executed": 9.0, "bytes": 4, "arguments": 3, "record": "s", "reason": "", "instruction": "vpdpbusd"},
            {"name": "r", "recipe": "offload:npu", "call_sites": [["q"]]},
        ],
        "offload": {"regions": [{"name": "region_0", "nodes": ["q"]}]},
    }  # fmt: skip
    first, region, second = launches_of(["a", "r", "a"], report, {"a": CODE})
    assert first.nodes == ("x",) and second.nodes == ("y", "z") and second.number == 3
    assert (first.flops, first.executed, first.bytes, first.arguments, first.record) == (8.0, 9.0, 4, 3, "s")
    assert first.code == CODE and first.backend == "" and first.region == "" and first.instruction == "vpdpbusd"
    assert (region.region, region.backend, region.flops, region.code) == ("region_0", "npu", None, None)
    timed = with_seconds([first, region, second], [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)])
    assert [launch.seconds for launch in timed] == [(1.0, 4.0), (2.0, 5.0), (3.0, 6.0)]
    assert [read(Launch, launch.as_dict()) for launch in timed] == list(timed)


def test_roofs_allow_the_least_of_both():
    assert ROOFS.seconds(1e9, 1) == pytest.approx(0.01)
    assert ROOFS.seconds(1, 10**8) == pytest.approx(0.01)
    assert ROOFS.bound(1e9, 10**8) == "compute" and ROOFS.bound(1e9 - 1, 10**8) == "memory"


@pytest.fixture
def short(monkeypatch):
    """Loops of some microseconds."""
    from tvm_ext.inspection.profile import roofs

    for name, value in (("_STEPS", 1000), ("_stream_bytes", lambda l3: 1 << 20)):
        monkeypatch.setattr(roofs, name, value)


@needs["int8"]
def test_instructions_of_a_model_are_measured(short):
    dot = dot_of("uint8", "int8", Machine.detect())
    assert dot is not None
    measured = RoofMeter(1, None, [dot.instruction, "", dot.instruction, "an instruction of nobody's"], 0.002).measure()
    assert list(measured.instructions) == [dot.instruction] and measured.peak(dot.instruction) > 0
    assert f"({dot.instruction})" in str(measured)


def test_tiles_are_measured_for_the_machine_of_the_model(short, monkeypatch):
    from tvm_ext.inspection.profile import roofs

    monkeypatch.setattr(roofs, "_STEPS", 400)
    with tile_instructions() as amx:
        measured = RoofMeter(1, MACHINE, ["tdpbf16ps"], 0.002).measure()
    amx.assert_entered("tdpbf16ps")
    assert measured.peak("tdpbf16ps") > 0


def test_the_roofs_of_this_machine_are_measured(short):
    meter = RoofMeter(1, seconds=0.002)
    first = meter.measure()
    second = meter.measure()
    for rate in ("flops", "bandwidth", "cache_bandwidth"):
        assert 0 < getattr(first, rate) <= getattr(second, rate)  # the best so far
    assert first.threads == 1 and first.stream_bytes >= 1 << 20 and "1 thread, measured by loops" in str(first)


@pytest.mark.parametrize(("l3", "mebibytes"), [(4, 64), (32, 128), (480, 1024), (800, 1600)])
def test_a_stream_is_longer_than_the_last_cache(l3, mebibytes):
    from tvm_ext.inspection.profile import roofs

    assert roofs._stream_bytes(l3 << 20) == mebibytes << 20
