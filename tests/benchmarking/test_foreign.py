"""Peers in a Python of their own, which has numpy and the peer and nothing of this library: a made-up OpenVINO."""

import json
import pathlib
import subprocess
import venv

import numpy as np
import pytest

from tests.verification.fakes import dense_model
from tvm_ext.benchmarking.benchmark import benchmark
from tvm_ext.benchmarking.process import Worker, WorkerError
from tvm_ext.verification.arrays import save_npz

# what prepare_openvino uses of OpenVINO, with one dense layer for every model
OPENVINO = """
import collections, numpy as np
__version__ = "1.2.3-fake"
W = np.linspace(-1.0, 1.0, 35, dtype=np.float32).reshape(7, 5)
PartialShape = tuple
Output = collections.namedtuple("Output", "names")
Output.get_names = lambda self: set(self.names)
Output.get_any_name = lambda self: sorted(self.names)[0]

class Core:
    def read_model(self, path):
        return Network(path)
    def compile_model(self, network, device, settings):
        return Compiled(network, device, settings)

class Network:
    def __init__(self, path):
        self.path, self.shapes = path, None
    def reshape(self, shapes):
        self.shapes = shapes

class Compiled:
    def __init__(self, network, device, settings):
        assert device == "CPU" and settings["INFERENCE_NUM_THREADS"] == 2, settings
        self.outputs = [Output(("a_name", "file")), Output(("/sum", "zz"))]
    def create_infer_request(self):
        return self
    def infer(self, inputs, share_inputs, share_outputs):
        y = inputs["x"] @ W
        return {"first": y, "second": -y}
"""
# what the contender asks the onnx package: names of the graph's inputs and outputs
ONNX = """
import types
def load(path, load_external_data=True):
    named = lambda *names: [types.SimpleNamespace(name=name) for name in names]
    return types.SimpleNamespace(graph=types.SimpleNamespace(
        input=named("x"), output=named("file", "/sum"), initializer=named("w")))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment of numpy alone."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = pathlib.Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    return folder / "bin" / "python", packages


@pytest.fixture
def files(tmp_path):
    (tmp_path / "m.onnx").write_bytes(dense_model()[0].SerializeToString())
    save_npz(tmp_path / "in.npz", {"x": np.ones((3, 7), np.float32)})
    paths = {"model": "m.onnx", "inputs": "in.npz", "outputs": "out.npz"}
    return {key: str(tmp_path / name) for key, name in paths.items()} | {"threads": 2, "options": {}}


def ask(python, message):
    worker = Worker(2, python=str(python[0]))
    try:
        return worker.ask(message, 60)
    finally:
        worker.close()


def test_that_python_has_nothing_of_ours(python):
    code = "import json, importlib.util as u; print(json.dumps([bool(u.find_spec(n)) for n in ('numpy', 'tvm_ext')]))"
    done = subprocess.run([python[0], "-c", code], capture_output=True, check=True, cwd="/", env={})
    assert json.loads(done.stdout) == [True, False]


@pytest.mark.parametrize("contender", ["openvino", "torch", "tvm", "onnxruntime"])
def test_what_is_missing_is_named_with_the_python(python, files, contender):
    with pytest.raises(WorkerError, match=r"MissingError: .* is not installed in") as error:
        ask(python, {**files, "contender": contender})
    assert str(python[0]) in str(error.value)


def test_a_peer_is_timed_and_checked_there(python, files):
    for name, text in (("openvino", OPENVINO), ("onnx", ONNX)):
        (python[1] / f"{name}.py").write_text(text)
    try:
        table = benchmark(
            files["model"], ("onnxruntime", "openvino"), 2, rounds=7, seconds_per_round=0.001, python=str(python[0]),
            cache=False,
        )  # fmt: skip
    finally:
        for name in ("openvino", "onnx"):
            (python[1] / f"{name}.py").unlink()
    row = table.row("openvino")
    assert row.ok, str(table)
    assert row.version == "openvino 1.2.3" and row.of_range < 1e-6 and len(row.rounds) == 7


def test_the_worker_leaves_no_folder(python, files, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(WorkerError):
        ask(python, {**files, "contender": "openvino"})
    assert list((tmp_path / "temporary").iterdir()) == []
