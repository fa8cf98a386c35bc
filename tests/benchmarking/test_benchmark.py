"""The whole harness with real worker processes on a tiny model, and its bookkeeping with fake ones."""

import contextlib
import sys
from typing import ClassVar

import numpy as np
import pytest

from tests.verification.fakes import dense_model
from tvm_ext.benchmarking import benchmark as module
from tvm_ext.benchmarking.benchmark import Race, benchmark
from tvm_ext.benchmarking.process import WorkerError
from tvm_ext.core.errors import InputError, ModelError, OptionError
from tvm_ext.runtime.spec import TensorSpec


class FakeWorker:
    """Answers at once; `script` maps a contender to its outputs, its time and what goes wrong in which round."""

    script: ClassVar[dict] = {}
    log: ClassVar[list] = []

    def __init__(self, threads, python=None):
        self.closed, self.python = False, python

    def ask(self, message, timeout):
        if "contender" in message:
            self.name = message["contender"]
            does = self.script[self.name]
            if "fails" in does:
                raise WorkerError(does["fails"])
            np.savez(message["outputs"], np.asarray(does["y"], np.float32))
            details = {"python": self.python}
            return {"ready": {"version": self.name, "details": details, "outputs": ["y"], "prepare_seconds": 1.0}}
        self.log.append(self.name)
        if self.log.count(self.name) == self.script[self.name].get("dies_in_round"):
            raise WorkerError("killed by SIGSEGV")
        return {"samples": [self.script[self.name]["time"], 1.0]}

    def close(self):
        self.closed = True


@pytest.fixture
def race(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "Worker", FakeWorker)
    monkeypatch.setattr(module, "calibrate", lambda threads: 0.01)
    FakeWorker.log = []

    def make(script, names, pythons=None):
        FakeWorker.script = script
        with contextlib.ExitStack() as stack:
            one = Race("m.onnx", tmp_path, 2, {}, 1.0, lambda _: None, stack, pythons)
            one.prepare(names)
            one.run(7, 0.1)
            return one.table("m", names)

    return make


GOOD = {"y": [1.0, 2.0], "time": 0.5}


def test_rounds_are_interleaved_in_alternating_order(race):
    table = race({"tvm_ext": {**GOOD, "time": 0.25}, "onnxruntime": GOOD}, ["tvm_ext", "onnxruntime"])
    forth, back = FakeWorker.log[:2], FakeWorker.log[2:4]
    assert len(FakeWorker.log) == 14 and forth == back[::-1] and set(forth) == {"tvm_ext", "onnxruntime"}
    assert table.ok and table.ratio("onnxruntime") == 0.5 and table.warnings == ()


def test_a_row_whose_outputs_disagree_has_no_time(race):
    wrong = {"y": [1.0, 2.1], "time": 0.1}
    table = race({"tvm_ext": wrong, "onnxruntime": GOOD}, ["tvm_ext", "onnxruntime"])
    ours = table.row("tvm_ext")
    assert "outputs disagree: y" in ours.reason and ours.rounds == () and ours.of_range == pytest.approx(0.1)
    assert table.ratio("onnxruntime") is None and table.row("onnxruntime").ok


def test_a_contender_that_dies_is_a_row_with_the_reason(race):
    dying = {**GOOD, "dies_in_round": 3}
    table = race({"tvm_ext": GOOD, "onnxruntime": dying}, ["tvm_ext", "onnxruntime"])
    assert table.row("onnxruntime").reason == "killed by SIGSEGV" and not table.row("onnxruntime").ok
    assert len(table.row("tvm_ext").rounds) == 7


def test_onnxruntime_checks_even_if_it_is_not_timed(race):
    table = race({"tvm_ext": GOOD, "tvm": GOOD, "onnxruntime": GOOD}, ["tvm_ext", "tvm"])
    assert "onnxruntime" not in FakeWorker.log and table.row("tvm").of_range == 0.0 and table.ok
    assert table.reference == "onnxruntime"


def test_without_a_reference_the_table_says_so(race):
    table = race({"tvm_ext": GOOD, "tvm": GOOD, "onnxruntime": {"fails": "no such op"}}, ["tvm_ext", "tvm"])
    assert table.reference == "" and "outputs were not compared: onnxruntime: no such op" in table.warnings
    assert "outputs were NOT compared" in str(table)


def test_a_peer_runs_in_its_own_python(race):
    script = {"tvm_ext": GOOD, "onnxruntime": GOOD, "openvino": GOOD}
    table = race(script, ["tvm_ext", "openvino"], {"openvino": "/there/python"})
    assert [row.details["python"] for row in table.rows] == [None, "/there/python"]


def test_one_python_is_that_of_all_peers_and_others_are_named():
    here, names = sys.executable, ["tvm_ext", "onnxruntime", "openvino", "torch"]
    assert module._pythons(here, names) == {"openvino": here, "torch": here}
    assert module._pythons({"onnxruntime": here}, names) == {"onnxruntime": here}
    assert module._pythons(None, names) == {}


def test_given_inputs_take_the_place_of_drawn_ones():
    specs = [TensorSpec("ids", (1, 3), "int64"), TensorSpec("x", (2,), "float32")]
    ids = np.array([[7, 1000, 9]])
    found = module._inputs(specs, {"ids": ids}, 0)
    assert found["ids"] is ids and found["x"].shape == (2,) and found["x"].std() > 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"y": np.zeros(2, np.float32)}, "no input 'y'"),
        ({"x": np.zeros(3, np.float32)}, r"float32 \(3,\), where float32 \(2,\)"),
        ({"x": np.zeros(2)}, "float64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        module._inputs([TensorSpec("x", (2,), "float32")], inputs, 0)


def test_a_symbolic_batch_is_refused():
    with pytest.raises(OptionError, match="one size is timed"):
        module._inputs([TensorSpec("x", ("N", 2), "float32")], {}, 0)


def test_nothing_left_to_run_is_no_hang(race):
    fails = {"fails": "broken"}
    table = race({"tvm_ext": fails, "onnxruntime": fails}, ["tvm_ext", "onnxruntime"])
    assert [row.reason for row in table.rows] == ["broken", "broken"] and not table.ok


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"against": ("tensorrt",)}, "tensorrt"),
        ({"against": ("tvm_ext",)}, "tvm_ext"),
        ({"rounds": 6}, "at least 7"),
        ({"seconds_per_round": 0.0}, "at least 7"),
        ({"treads": 2}, "unknown compile option"),
        ({"threads": 0}, "threads=0"),
        ({"python": {"openvino": sys.executable}}, "openvino.*not among the contenders"),
        ({"python": {"tvm_ext": sys.executable}}, "tvm_ext.*not among the contenders"),
        ({"against": ("torch",), "python": "/no/such/python"}, "/no/such/python"),
    ],
)
def test_bad_options_are_refused(kwargs, message):
    with pytest.raises(OptionError, match=message):
        benchmark(dense_model()[0], **kwargs)


def test_bad_models_are_refused(tmp_path):
    with pytest.raises(ModelError, match="no file"):
        benchmark(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="free"):
        benchmark(dense_model(free=True)[0])


@pytest.mark.long
@pytest.mark.parametrize("others", [("onnxruntime",), ("onnxruntime", "tvm")], ids=len)
def test_real_processes(others):
    model = dense_model(free=True)[0]
    source = model.SerializeToString() if len(others) == 1 else model
    told = []
    table = benchmark(source, others, 1, rounds=7, seconds_per_round=0.01, progress=told.append, shapes={"x": (3, 7)})
    assert table.ok, str(table)
    assert all(table.ratio(other) > 0 for other in others)
    assert all(row.of_range < 1e-6 and len(row.rounds) == 7 for row in table.rows)
    assert len(table.calibration) == 7 and table.machine["isa"] and "round 7 of 7" in told
