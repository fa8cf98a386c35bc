"""The whole harness with real worker processes on a tiny model, and its bookkeeping with fake ones."""

import contextlib
import sys
from typing import ClassVar

import numpy as np
import pytest

from tests.onnx_graphs import model, node, random, value
from tests.verification.fakes import dense_model
from tvm_ext.benchmarking import benchmark as module
from tvm_ext.benchmarking.benchmark import Race, benchmark
from tvm_ext.benchmarking.process import WorkerError
from tvm_ext.core.errors import InputError, ModelError, OptionError
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend.reading.reader import read_model
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

    def make(script, names, pythons=None, options=(), fixed=()):
        FakeWorker.script = script
        with contextlib.ExitStack() as stack:
            one = Race("m.onnx", tmp_path, 2, dict(options), 1.0, lambda _: None, stack, pythons or {})
            one.fixed = dict(fixed)
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
    inputs = module._inputs(specs, {"ids": ids}, 0)
    assert inputs["ids"] is ids and inputs["x"].shape == (2,) and inputs["x"].std() > 0


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


def sized(options, inputs=(), sizes=None):
    """Shapes of the inputs of a model at one size, and the size."""
    nodes = [node("MatMul", "x w", "h"), node("Add", "h b", "y")]
    free = [value("x", ["N", "S", 7]), value("b", ["N", "S", 5])]
    proto = model(nodes, free, [value("y", ["N", "S", 5])], {"w": random(7, 5)})
    specs, at = module._sized_specs(read_model(proto), CompileOptions(**options), dict(inputs), sizes)
    return [spec.shape for spec in specs], at


def test_symbolic_sizes_are_the_stated_or_those_of_inputs_or_the_largest():
    assert sized({}) == ([(8, 512, 7), (8, 512, 5)], {"N": 8, "S": 512})
    assert sized({"dims": {"S": (1, 40)}}, sizes={"S": 3, "N": 2}) == ([(2, 3, 7), (2, 3, 5)], {"N": 2, "S": 3})
    assert sized({}, {"x": random(2, 9, 7)}) == ([(2, 9, 7), (2, 9, 5)], {"N": 2, "S": 9})
    assert sized({"shapes": {"x": (2, 9, 7)}}) == ([(2, 9, 7), (2, 9, 5)], {})
    batch = {"shapes": {"x": ("N", 9, 7)}}
    assert sized(batch)[1] == {"N": 4}, "also where its program has the default bounds of a batch"
    assert (
        sized({**batch, "specialize": {"N": (1, 32)}})[1] == {"N": 32} and sized(batch, sizes={"N": 99})[1]["N"] == 99
    )
    for sizes, inputs in (({"N": 2}, {}), ({"N": 9, "S": 1}, {}), ({"N": 2, "S": 9}, {"x": random(2, 9, 7)})):
        with pytest.raises(OptionError, match="sizes="):
            sized({}, inputs, sizes)
    with pytest.raises(OptionError, match="no symbolic dimension"):
        sized({"shapes": {"x": (2, 9, 7)}}, sizes={"N": 2})
    with pytest.raises(InputError, match="N is 3 here and 2 in"):
        sized({}, {"x": random(2, 9, 7), "b": random(3, 9, 5)})


def test_peers_have_the_sizes_as_numbers(race, monkeypatch):
    asked = {}
    ask = FakeWorker.ask

    def noting(self, message, timeout):
        asked.update({message["contender"]: message["options"]["shapes"]} if "contender" in message else {})
        return ask(self, message, timeout)

    monkeypatch.setattr(FakeWorker, "ask", noting)
    race({name: {"y": [1.0], "time": 1.0} for name in ("tvm_ext", "onnxruntime", "tvm")}, ["tvm_ext", "tvm"],
         options={"shapes": {"x": ("N", 7)}}, fixed={"x": [3, 7]})  # fmt: skip
    assert asked == {"tvm_ext": {"x": ["N", 7]}, "onnxruntime": {"x": [3, 7]}, "tvm": {"x": [3, 7]}}


def test_nothing_left_to_run_is_no_hang(race):
    fails = {"fails": "broken"}
    table = race({"tvm_ext": fails, "onnxruntime": fails}, ["tvm_ext", "onnxruntime"])
    assert [row.reason for row in table.rows] == ["broken", "broken"] and not table.ok


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"against": ("tensorrt",)}, "tensorrt"), ({"against": ("tvm_ext",)}, "tvm_ext"),
        ({"rounds": 6}, "rounds=6"), ({"rounds": "9"}, "rounds="), ({"seconds_per_round": 0.0}, "seconds_per_round"),
        ({"treads": 2}, "unknown compile option"), ({"threads": 0}, "threads=0"),
        ({"python": {"openvino": sys.executable}}, "openvino.*not among the contenders"),
        ({"python": {"tvm_ext": sys.executable}}, "tvm_ext.*not among the contenders"),
        ({"against": ("torch",), "python": "/no/such/python"}, "/no/such/python"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(kwargs, message):
    with pytest.raises(OptionError, match=message):
        benchmark(dense_model()[0], **kwargs)


def test_bad_models_are_refused(tmp_path):
    with pytest.raises(ModelError, match="no file"):
        benchmark(tmp_path / "missing.onnx")


@pytest.mark.long
def test_real_processes():
    source, others, told = dense_model(free=True)[0].SerializeToString(), ("onnxruntime", "tvm"), []
    table = benchmark(source, others, 1, rounds=7, seconds_per_round=0.01, progress=told.append, shapes={"x": (3, 7)})
    assert table.ok, str(table)
    assert all(table.ratio(other) > 0 for other in others)
    assert all(row.of_range < 1e-6 and len(row.rounds) == 7 for row in table.rows)
    assert len(table.calibration) == 7 and table.machine["isa"] and "round 7 of 7" in told
