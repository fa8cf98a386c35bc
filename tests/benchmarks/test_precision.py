"""Reduced precision's harness: contests of unlike programs, bars, pages; OpenVINO is made up, nothing is installed."""

import json
import sys

import numpy as np
import pytest

from benchmarks import precision
from benchmarks.asked import accuracy
from benchmarks.asked.settings import Settings
from benchmarks.common.rows import Row, Unavailable
from benchmarks.measuring import openvino
from benchmarks.measuring.contest import Contender, Standing, contest
from benchmarks.measuring.races import RACES, Bar, add_reasons
from benchmarks.models.models import MODELS, outputs_of
from benchmarks.pages import answers
from tests.onnx_graphs import model, node, random, value
from tvm_ext.benchmarking.table import BenchmarkRow

# what the worker uses of OpenVINO; onnxruntime computes, and ERROR of each output's magnitude is added
OPENVINO = """
import os, types, numpy as np, onnxruntime
__version__ = "1.2.3-fake"
PartialShape = tuple
Value = lambda text: types.SimpleNamespace(astype=lambda kind: text)
Type = types.SimpleNamespace(get_type_name=lambda: "bf16")

class Core:
    def read_model(self, path):
        self.session = onnxruntime.InferenceSession(path)
        return self
    def reshape(self, shapes):
        assert list(shapes["x"]) == [3, 7], shapes
    def compile_model(self, network, device, settings):
        assert settings["INFERENCE_NUM_THREADS"] == 2 and "INFERENCE_PRECISION_HINT" not in settings
        network.outputs = [types.SimpleNamespace(get_names=lambda: {"other", "y"}, get_any_name=lambda: "other")]
        return network
    def create_infer_request(self):
        return self
    def get_property(self, name):
        return Type
    def get_runtime_model(self):
        facts = {"layerType": "FullyConnected", "primitiveType": "brgemm", "runtimePrecision": "bf16"}
        op = types.SimpleNamespace(get_rt_info=lambda: {key: Value(text) for key, text in facts.items()})
        return types.SimpleNamespace(get_ops=lambda: [op, op])
    def infer(self, inputs, share_inputs, share_outputs):
        (y,) = self.session.run(None, inputs)
        return {"y": (y + ERROR * np.abs(y).max()).astype(y.dtype)}
"""
X = {"x": random(3, 7)}


@pytest.fixture
def dense(tmp_path):
    path = tmp_path / "dense.onnx"
    graph = model([node("MatMul", "x w", "y")], [value("x", (3, 7))], [value("y", (3, 5))], {"w": random(7, 5)})
    path.write_bytes(graph.SerializeToString())
    return path


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts an OpenVINO of a given error where the benchmark would install one."""

    def put(error):
        (tmp_path / "openvino.py").write_text(f"ERROR = {error}\n{OPENVINO}")
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{tmp_path}" exec "{sys.executable}" "$@"\n')
        program.chmod(0o755)
        monkeypatch.setattr(openvino, "python", lambda: str(program))

    return put


def race(dense, folder):
    entries = [
        Contender("f32", "ours", "tvm_ext", dense, "f32", {"cache": False}),
        Contender("onnxruntime", "onnxruntime", "onnxruntime", dense, "f32"),
        Contender("openvino", "OpenVINO", "openvino", dense, "bf16"),
    ]
    return entries, contest(entries, X, outputs_of(dense), Settings(folder, 2, 7, 0.001))


def test_a_contest_times_what_agrees(dense, fake, tmp_path):
    fake(0.001)
    entries, race_result = race(dense, tmp_path / "race")
    assert all(row.ok and len(row.rounds) == 7 for row in race_result.rows.values()), race_result
    assert len(race_result.ratios("f32", "openvino")) == 7 and 1e-4 < race_result.rows["openvino"].of_range < 0.01
    text = "\n".join(answers.contenders_table(entries, race_result))
    assert "* OpenVINO took bf16: 2 brgemm (FullyConnected, bf16)" in text and "| openvino 1.2.3 |" in text
    assert json.dumps(answers.details(race_result))


def test_outputs_that_disagree_have_no_time(dense, fake, tmp_path):
    fake(0.5)
    _, race_result = race(dense, tmp_path / "race")
    assert "outputs disagree" in race_result.rows["openvino"].reason and race_result.ratios("f32", "openvino") == []
    row = Bar("f32 / OpenVINO", "f32", ("openvino",), 1.0).row("Dense", race_result)
    assert row.met is False and "outputs disagree" in row.measured
    assert Bar("told", "f32", ("openvino",)).row("Dense", race_result).met is None


def test_without_openvino_the_others_go_on(dense, tmp_path, monkeypatch):
    def missing():
        raise Unavailable("OpenVINO: no matching distribution")

    monkeypatch.setattr(openvino, "python", missing)
    _, race_result = race(dense, tmp_path / "race")
    assert race_result.rows["f32"].ok and race_result.rows["openvino"].reason == "OpenVINO: no matching distribution"


def test_outputs_of_many_inputs(dense, fake):
    fake(0.0)
    sets = [{"x": random(3, 7, seed=seed)} for seed in range(3)]
    results = openvino.outputs(dense, ["y"], sets, 2)
    assert [outputs["y"].shape for outputs in results] == [(3, 5)] * 3
    weight = random(7, 5)
    for outputs, inputs in zip(results, sets, strict=True):
        np.testing.assert_allclose(outputs["y"], inputs["x"] @ weight, rtol=1e-5, atol=1e-5)


def test_a_failing_openvino_says_why(dense, fake):
    fake("1 / 0")
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        openvino.outputs(dense, ["y"], [X], 2)


def test_the_environment_is_made_once(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(openvino, "CACHE", tmp_path)
    monkeypatch.setattr(openvino, "run", lambda what, command, timeout: commands.append(command))
    folder = tmp_path / openvino.REQUIREMENTS[0].replace("==", "-")
    folder.mkdir(parents=True)
    folders = [openvino.python.__wrapped__() for _ in range(2)]
    assert folders == [str(folder / "bin" / "python")] * 2
    assert [command[2] for command in commands] == ["venv", "pip"] and openvino.REQUIREMENTS[0] in commands[1]


def standing(**minima):
    rows = {key: BenchmarkRow(key, "1", tuple((t, 2 * t) for t in times), 0.0) for key, times in minima.items()}
    return Standing(rows, {})


def test_a_bar_is_held_against_the_fastest():
    race_result = standing(ours=[1.0, 1.0, 1.0], slow=[4.0, 4.0, 4.0], fast=[2.0, 1.6, 2.5])
    row = Bar("int8 / int8", "ours", ("slow", "fast"), 0.5).row("M", race_result)
    assert row.met and row.measured.startswith("0.500 (rounds 0.40 to 0.62; least 1e+03 / 1.6e+03 ms")
    assert row.details["other"] == "fast" and row.what == "M: int8 / int8"
    assert not Bar("", "ours", ("fast",), 0.49).row("M", race_result).met
    told = Bar("", "ours", ("fast",)).row("M", race_result)
    assert told.bar == "(told)" and told.met is None


def test_races_are_of_known_models_and_contenders(dense, tmp_path, monkeypatch):
    assert {race.model for race in RACES.values()} <= MODELS.keys()
    monkeypatch.setattr("benchmarks.measuring.races.quantized", lambda key, folder, activations: dense)
    for name in ("resnet18", "matmul"):
        keys = [entry.key for entry in RACES[name].contenders(RACES[name].model, tmp_path)]
        assert len(set(keys)) == len(keys) and "onnxruntime" in keys
        assert {key for bar in RACES[name].bars for key in (bar.ours, *bar.others)} <= set(keys)


def test_missed_ratios_are_explained_by_a_profile_of_our_program(dense, monkeypatch):
    asked = []
    monkeypatch.setattr("benchmarks.measuring.races.explained", lambda *args: asked.append(args) or "memory-bound")
    entry = Contender("bf16", "ours", "tvm_ext", dense, "bf16", {"precision": "bf16"})
    rows = [
        Row("met", "1", "0.5", True, {"ratio": 0.5, "ours": "bf16"}), Row("lost", "1", "drop", False),
        Row("missed", "1", "2", False, {"ratio": 2.0, "ours": "bf16"}),
    ]  # fmt: skip
    add_reasons(rows, [entry], X, 2)
    assert asked == [(dense, 2, {"shapes": {"x": (3, 7)}, "precision": "bf16"}, X)]
    assert [row.details.get("reason") for row in rows] == [None, None, "memory-bound"]


def test_errors_are_of_floating_outputs():
    wanted = {"ids": np.array([1, 2]), "y": np.array([0.0, 4.0], np.float32)}
    assert accuracy.error({"ids": np.array([9, 9]), "y": np.array([0.0, 3.0], np.float32)}, wanted) == 0.25


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Two parts, and pages in a folder."""

    def broken(settings):
        raise Unavailable("no network")

    rows = [
        Row("g", "1 or less", "0.5", True),
        Row("slow", "1 or less", "2", False, {"ratio": 2, "reason": "L2-bound"}),
    ]
    entries = {"good": ("Good", lambda s: answers.Answer(rows, ["a table"]))}
    monkeypatch.setattr(precision, "PARTS", {**entries, "bad": ("Bad", broken)})
    monkeypatch.setattr(precision.machines, "write", lambda: None)
    monkeypatch.setattr(precision, "RESULTS", tmp_path)
    return tmp_path


def test_parts_are_replaced_one_by_one(parts, capsys):
    assert precision.main(["--only", "bad"]) == 1
    assert precision.main(["--only", "good"]) == 1
    document, text = json.loads((parts / "precision.json").read_text()), (parts / "precision.md").read_text()
    assert list(document["parts"]) == ["good", "bad"]
    assert "| Bad | - | not available: no network | NO |" in text and "| g | 1 or less | 0.5 | yes |" in text
    assert "* slow: L2-bound" in text and "* Bad" not in text and "a table" in text
    assert "Bad" not in capsys.readouterr().out.rpartition("# Reduced")[2]


def test_a_quick_run_writes_nothing(parts, capsys):
    assert precision.main(["--quick"]) == 1
    assert list(parts.iterdir()) == [] and "| Bad |" in capsys.readouterr().out
