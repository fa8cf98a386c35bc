"""What runs inside a worker: sampling, and the protocol around a real contender."""

import io
import json

import numpy as np
import pytest

from tests.runtime.processes import run_python
from tests.verification.fakes import dense_model
from tvm_ext.benchmarking import worker
from tvm_ext.benchmarking.contenders import CONTENDERS
from tvm_ext.cli.bench import PEERS
from tvm_ext.verification.arrays import save_npz


class Clock:
    """Time that passes only when the call under test runs."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    fake = Clock()
    monkeypatch.setattr(worker.time, "perf_counter", fake)
    return fake


def costing(clock, seconds):
    calls = []

    def call():
        calls.append(1)
        clock.now += seconds

    return call, calls


def test_a_slow_call_is_made_once(clock):
    call, calls = costing(clock, 2.0)
    assert worker.sample(call, 0.5) == [2.0] and len(calls) == 1


def test_a_fast_call_fills_its_time_after_a_warm_up(clock):
    call, calls = costing(clock, 0.25)
    assert worker.sample(call, 1.0) == [0.25] * 4
    assert len(calls) == 5  # the first, which already took the fifth of a second of warm-up


def test_there_is_a_limit_of_samples(clock):
    call, _ = costing(clock, 1e-7)
    assert len(worker.sample(call, 0.02)) == worker.MOST_SAMPLES


@pytest.fixture
def files(tmp_path):
    model, w = dense_model()
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    save_npz(tmp_path / "in.npz", {"x": x})
    return tmp_path, x @ w


def message(folder, contender):
    return {
        "contender": contender, "model": str(folder / "m.onnx"), "threads": 1, "options": {},
        "inputs": str(folder / "in.npz"), "outputs": str(folder / "out.npz"),
    }  # fmt: skip


@pytest.mark.parametrize("contender", ["onnxruntime", "tvm"])
def test_a_contender_saves_outputs_and_gives_samples(files, contender):
    folder, expected = files
    again = {name: str(folder / f"{file}.npz") for name, file in (("inputs", "in"), ("outputs", "again"))}
    requests = [message(folder, contender), {"run": again}, {"round": {"seconds": 0.01}}]
    answers = io.StringIO()
    worker._serve(io.StringIO("".join(json.dumps(r) + "\n" for r in requests)), answers)
    ready, run_answer, round_answer = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert ready["ready"]["version"].startswith({"onnxruntime": "onnxruntime 1", "tvm": "apache-tvm 0.27"}[contender])
    assert all(s > 0 for s in round_answer["samples"])
    assert ready["ready"]["outputs"] == ["file", "/sum"] and ready["ready"]["prepare_seconds"] > 0
    assert run_answer["outputs"] == ready["ready"]["outputs"]
    with np.load(folder / "out.npz") as outputs, np.load(folder / "again.npz") as others:
        assert all((outputs[name] == others[name]).all() for name in outputs)
        np.testing.assert_allclose(outputs["arr_0"], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(outputs["arr_1"], -outputs["arr_0"])


def test_a_round_needs_a_contender():
    with pytest.raises(RuntimeError, match="before"):
        worker._serve(io.StringIO('{"round": {"seconds": 1}}\n'), io.StringIO())


def test_contenders_have_the_names_of_the_interface():
    assert list(CONTENDERS) == ["tvm_ext", "onnxruntime", "openvino", "torch", "tvm"]
    assert tuple(name for name in CONTENDERS if name != "tvm_ext") == PEERS


def test_a_back_end_is_imported_by_the_worker(tmp_path, monkeypatch):
    """Its name and module travel as JSON; the process of the worker knows nothing of what was registered in ours."""
    import sys

    from tvm_ext.benchmarking.benchmark import _plain
    from tvm_ext.cli import main

    assert main(["new", "backend", "bench_chip", "--directory", str(tmp_path)]) == 0
    monkeypatch.setattr(sys, "path", [str(tmp_path / "bench_chip"), *sys.path])
    import bench_chip

    model = tmp_path / "m.onnx"
    model.write_bytes(dense_model()[0].SerializeToString())
    options = {"offload": bench_chip.BACKEND, "offload_options": {"when": "always"}}
    plain = json.loads(json.dumps(_plain(options)))
    assert (plain["offload"], plain["imports"]) == ("bench_chip", ["bench_chip"])
    assert plain == json.loads(json.dumps(_plain({**options, "offload": "bench_chip"})))
    script = (
        "import json, sys; from tvm_ext.benchmarking.contenders import CONTENDERS; "
        "made = CONTENDERS['tvm_ext'](sys.argv[1], 1, json.loads(sys.argv[2])); print('bench_chip' in sys.modules)"
    )
    assert run_python(script, model, json.dumps(plain)) == "True"


def test_paused_calls_know_what_they_cost_and_what_the_pauses_cost(clock, monkeypatch):
    used = [0.0]
    call, calls = costing(clock, 2.0)

    def working():
        call()
        used[0] += 3.0

    monkeypatch.setattr(worker.time, "process_time", lambda: used[0])
    monkeypatch.setattr(worker.time, "sleep", lambda pause: used.__setitem__(0, used[0] + pause))
    assert worker.paused(working, 4, 0.5) == ([2.0] * 4, 3.5, 3.0)
    assert len(calls) == 5
