"""Profiles of small models, from the model to the file; no time is asserted."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tvm_ext
from tests.inspection.profile.fakes import OVERHEAD, ROOFS, sample
from tests.onnx_graphs import model as make_model
from tests.onnx_graphs import node, random, value
from tvm_ext.core.errors import InputError, OptionError, UnsupportedError
from tvm_ext.inspection.profile import Profile, profile_text, run


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Roofs and overhead of round numbers: measuring them takes seconds, and is tested by itself."""

    class Meter:
        def __init__(self, threads, machine, instructions, seconds):
            self.threads = threads

        def measure(self):
            return replace(ROOFS, threads=self.threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "RoofMeter", Meter)
        patch.setattr(run, "measured_overhead", lambda: OVERHEAD)
        yield


def two_layers(rows=3):
    """x w1 + b, relu, w2: two kernels on prime sizes."""
    nodes = [
        node("MatMul", "x w1", "m", "fc1"), node("Add", "m b", "a", "bias"), node("Relu", "a", "r", "act"),
        node("MatMul", "r w2", "y", "fc2"),
    ]  # fmt: skip
    weights = {"w1": random(7, 13), "b": random(13), "w2": random(13, 5)}
    return make_model(nodes, [value("x", [rows, 7])], [value("y", [rows, 5])], weights)


@pytest.fixture(scope="module")
def measured():
    return tvm_ext.profile(two_layers(), rounds=2, seconds=0, threads=1, cache=False, records=None)


def test_each_launch_has_its_nodes_work_times_and_code(measured):
    first, second = measured.launches
    assert set(first.nodes) == {"fc1", "bias", "act"} and second.nodes == ("fc2",)
    assert first.flops == 2 * 3 * 7 * 13 + 2 * 3 * 13 and second.flops == 2 * 3 * 13 * 5
    assert first.executed >= first.flops  # rounded up to whole tiles
    assert second.bytes >= 4 * (3 * 13 + 13 * 5 + 3 * 5)
    assert all(len(launch.seconds) == 2 and min(launch.seconds) >= 0 for launch in measured.launches)
    assert all(launch.recipe == "dense" and launch.config for launch in measured.launches)
    assert all(launch.code.instructions > 0 for launch in measured.launches)
    assert measured.threads == 1 and measured.batch == 0 and measured.notes == ()


def test_the_rows_and_what_is_outside_are_the_whole(measured):
    rows = measured.rows()
    assert sum(row.median for row in rows) + measured.outside == pytest.approx(measured.seconds)
    assert sum(row.share for row in rows) == pytest.approx(measured.in_kernels / measured.seconds)
    assert measured.coverage.rounds == 2


def test_it_goes_through_a_file(measured, tmp_path):
    measured.save(tmp_path / "profile.json")
    read = Profile.load(tmp_path / "profile.json")
    assert read.launches == measured.launches and read.whole == measured.whole and read.roofs == measured.roofs
    assert [timeline.spans[0].name for timeline in read.timelines] == [
        timeline.spans[0].name for timeline in measured.timelines
    ]
    assert str(read) == str(measured)
    read.trace(tmp_path / "trace.json", runs=2)
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert all(names.count(launch.kernel) == 2 for launch in measured.launches)


def test_the_text_tells_how_it_was_measured():
    text = str(sample())
    for part in (
        "looking costs", "subtracted", "GFLOP/s (multiply-adds", "outside kernels", "whole run", "kernels / und",
    ):  # fmt: skip
        assert part in text
    assert "region_0" in text and "8.00" not in text
    few = profile_text(sample(), top=2, details=True)
    assert "3 other launches" in few and "tile=4" in few and "512-bit" in few and "region region_0 on npu" in few
    assert "record of session-1" in profile_text(sample(), details=True)


def test_a_notebook_shows_rows_and_roofline():
    html = sample()._repr_html_()
    assert html.count("<table") == 1 and "<svg" in html and "relu, fc1" in html


def test_a_loaded_artifact_has_figures_and_no_facts_of_its_code(tmp_path):
    tvm_ext.compile(two_layers(), threads=1, records=None).export(tmp_path / "small.so")
    profile = tvm_ext.profile(str(tmp_path / "small.so"), rounds=1, seconds=0)
    assert [launch.nodes for launch in profile.launches][1] == ("fc2",)
    assert profile.launches[1].flops == 2 * 3 * 13 * 5 and profile.launches[1].code is None
    assert any("the model was compiled before" in note for note in profile.notes)
    with pytest.raises(OptionError, match="options threads for a model that is compiled already"):
        tvm_ext.profile(str(tmp_path / "small.so"), threads=1)


SYMBOLIC = {"shapes": {"x": ("N", 7)}, "specialize": {"N": (1, 4)}, "threads": 1, "records": None}


@pytest.mark.long
def test_kernels_of_each_size_of_a_symbolic_batch_have_facts_of_their_code():
    profile = tvm_ext.profile(two_layers("N"), batch=5, rounds=1, seconds=0, **SYMBOLIC)
    assert len(profile.launches) == 4 and all(launch.code for launch in profile.launches)


def test_a_symbolic_batch_is_profiled_at_a_size():
    compiled = tvm_ext.compile(two_layers("N"), **SYMBOLIC)
    assert tvm_ext.profile(compiled, rounds=1, seconds=0).batch == 4
    five = tvm_ext.profile(compiled, batch=5, rounds=1, seconds=0)
    assert five.batch == 5 and [launch.batch for launch in five.launches] == [4, 4, 1, 1]
    assert all(launch.kernel.endswith(f"_n{launch.batch}") for launch in five.launches)
    assert tvm_ext.profile(compiled, {"x": random(2, 7)}, rounds=1, seconds=0).batch == 2
    assert tvm_ext.profile(compiled, sizes={"N": 2}, rounds=1, seconds=0).batch == 2
    for batch, message in ((0, "a whole number"), (3, "the inputs have N 2, not N 3")):
        with pytest.raises(OptionError, match=message):
            tvm_ext.profile(compiled, {"x": random(2, 7)}, batch=batch)
    with pytest.raises(OptionError, match="batch=2 and sizes="):
        tvm_ext.profile(compiled, batch=2, sizes={"N": 2})


def test_a_program_of_any_size_is_profiled_at_sizes_and_has_figures_at_its_bounds(tmp_path):
    whole = tvm_ext.profile(two_layers("N"), dims={"N": (1, 4)}, threads=1, records=None, cache=False,
                            rounds=1, seconds=0)  # fmt: skip
    assert whole.sizes == {"N": 4} and whole.batch == 0 and whole.name == "small, N 4" and whole.notes == ()
    assert [launch.flops for launch in whole.launches] == [2 * 4 * 7 * 13 + 2 * 4 * 13, 2 * 4 * 13 * 5]
    assert all(launch.code for launch in whole.launches)
    compiled = tvm_ext.compile(two_layers("N"), dims={"N": (1, 4)}, threads=1, records=None)
    part = tvm_ext.profile(compiled, sizes={"N": 3}, rounds=1, seconds=0)
    assert part.sizes == {"N": 3} and [len(launch.seconds) for launch in part.launches] == [1, 1]
    assert all(launch.flops is launch.executed is launch.bytes is None for launch in part.launches)
    assert any("planned at, N 4, and not at N 3" in note for note in part.notes)
    assert tvm_ext.profile(compiled, {"x": random(2, 7)}, rounds=1, seconds=0).sizes == {"N": 2}
    part.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").sizes == {"N": 3}
    with pytest.raises(OptionError, match=r"different sizes: 'small, N 3' and 'small, N 4'"):
        part.compare(whole)
    with pytest.raises(UnsupportedError, match="small, N 3: no kernel's operations"):
        part.roofline()
    with pytest.raises(OptionError, match=r"no symbolic batch\n.*sizes of N"):
        tvm_ext.profile(compiled, batch=2)
    for wrong in ({"N": 5}, {"M": 1}):
        with pytest.raises(OptionError, match="sizes="):
            tvm_ext.profile(compiled, sizes=wrong)


def test_a_memory_plan_is_that_of_the_bounds():
    compiled = tvm_ext.compile(two_layers("N"), dims={"N": (1, 4)}, threads=1, records=None)
    plan = tvm_ext.memory_plan(compiled)
    assert plan.sizes == {"N": 4} == plan.as_dict()["sizes"] and "planned at N 4" in str(plan)
    assert next(b for b in plan.buffers if not b.workspace).nbytes >= 4 * 13 * 4


def test_an_offloaded_region_is_a_row():
    profile = tvm_ext.profile(
        two_layers(), rounds=1, seconds=0, threads=1, offload="systolic", offload_options={"when": "always"}, code=False
    )
    (launch,) = profile.launches
    assert launch.backend == "systolic" and launch.region and {"fc1", "fc2"} <= set(launch.nodes)
    assert launch.flops == 2 * 3 * (7 * 13 + 13 * 5)
    assert "region" in profile_text(profile, details=True)


def test_what_is_wrong_is_said_before_anything_is_measured():
    compiled = tvm_ext.compile(two_layers(), threads=1, records=None)
    for changes, message in (
        ({"rounds": 0}, "rounds=0"), ({"rounds": True}, "rounds=True"), ({"seconds": -1}, "seconds=-1"),
        ({"code": 1}, "code=1"),
        ({"batch": 2}, "has no symbolic batch"), ({"fusion": "none"}, "options fusion for a model that is compiled"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=message):
            tvm_ext.profile(compiled, **changes)
    with pytest.raises(InputError, match="pass a dict"):
        tvm_ext.profile(compiled, 3)
    with pytest.raises(InputError, match="shape"):
        tvm_ext.profile(compiled, {"x": np.zeros((4, 7), np.float32)})


def test_a_model_without_kernels_is_refused():
    shape = {"s": np.array([2, 3])}
    nothing = make_model([node("Reshape", "x s", "y")], [value("x", [6])], [value("y", [2, 3])], shape)
    with pytest.raises(UnsupportedError, match="has no kernels"):
        tvm_ext.profile(nothing, rounds=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "its format is 'other'"),
        (lambda d: d.pop("roofs"), "roofs: missing"),
        (lambda d: d.update(launches=[]), "each launch needs a time"),
        (lambda d: d.update(seconds=d["seconds"][1:]), "each launch needs a time"),
        (lambda d: d["launches"][0].update(number="1"), "launches: number: '1'"),
    ],
)
def test_a_damaged_profile_is_refused(change, message):
    plain = json.loads(json.dumps(sample().as_dict()))
    change(plain)
    with pytest.raises(OptionError, match=message):
        Profile.from_dict(plain)


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    for name, message in (("bad.json", "no JSON"), ("list.json", "format is 'list'"), ("none.json", "cannot read")):
        with pytest.raises(OptionError, match=message):
            Profile.load(tmp_path / name)
    with pytest.raises(OptionError, match="the path of a profile"):
        Profile.load(None)
