"""Profiles of small models, from the model to the file; no time is asserted."""

from __future__ import annotations

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
        def __init__(self, threads, machine, instructions):
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
    assert [one.spans[0].name for one in read.timelines] == [one.spans[0].name for one in measured.timelines]
    assert str(read) == str(measured)
    read.trace(tmp_path / "trace.json", runs=2)
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert all(names.count(launch.kernel) == 2 for launch in measured.launches)


def test_the_text_tells_how_it_was_measured():
    text = str(sample())
    for part in (
        "looking costs",
        "subtracted",
        "GFLOP/s (multiply-adds",
        "outside kernels",
        "whole run",
        "kernels / und",
    ):
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
    for batch, message in ((0, "a whole number"), (3, "input 'x' has 2 rows")):
        with pytest.raises(OptionError, match=message):
            tvm_ext.profile(compiled, {"x": random(2, 7)}, batch=batch)


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
        ({"batch": 2}, "has no symbolic batch"), ({"fusion": "none"}, "options fusion for a model that is compiled"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=message):
            tvm_ext.profile(compiled, **changes)
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
        (lambda d: d.pop("roofs"), "KeyError: 'roofs'"),
        (lambda d: d.update(launches=[]), "each launch needs a time"),
        (lambda d: d.update(seconds=d["seconds"][1:]), "each launch needs a time"),
        (lambda d: d["launches"][0].update(unknown=1), "TypeError"),
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
