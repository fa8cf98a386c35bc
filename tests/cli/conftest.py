"""A command line with a fake compiler behind it, for what the verbs themselves do."""

import importlib
import json
import sys
import types

import numpy as np
import pytest

from tests.onnx_graphs import saved
from tests.verification.fakes import FakeCompiled, dense_model
from tvm_ext.cli import main
from tvm_ext.core.errors import ModelError
from tvm_ext.runtime.spec import TensorSpec

REPORT = {
    "kernels": [
        {"name": "dense_0", "recipe": "dense-packed", "config": {"tile": 4}, "nodes": ["dense"], "calls": 2},
        {"name": "neg", "recipe": "generic", "config": None, "nodes": ["a", "b", "c", "d"], "calls": 1},
    ],
    "launches": 3,
    "passes": [{"name": "dead-code", "seconds": 0.001, "fired": [["x", "dropped"]], "skipped": [["y", "used"]]}],
    "timing": {"import": 0.5, "build": 1.25},
    "warnings": ["NaN in weight 'w'"],
}


class Fake(FakeCompiled):
    """x W and its negation, with a report; `error` is added to the first output."""

    def __init__(self, error, options):
        _, w = dense_model()

        def function(inputs):
            y = inputs["x"] @ w
            return {"file": y + np.float32(error), "/sum": -y}

        super().__init__([TensorSpec("x", (3, 7), "float32")], function)
        self.outputs = (TensorSpec("file", (3, 5), "float32"), TensorSpec("/sum", (3, 5), "float32"))
        self.options, self.report = options, REPORT

    def export(self, path):
        with open(path, "wb") as stream:
            stream.write(b"\x7fELF")


@pytest.fixture
def fake(monkeypatch):
    """Replaces the compiler; what it was called with is in `calls`, what it raises in `raises`."""
    state = types.SimpleNamespace(error=0.0, raises=None, calls=[])

    def compile_model(model, **options):
        state.calls.append((model, options))
        if state.raises:
            raise state.raises
        if isinstance(model, str) and model.endswith(".missing"):
            raise ModelError(f"{model}: no such file", fix="give the path of an ONNX file")
        return Fake(state.error, options)

    for consumer in ("inspection.report", "inspection.memory", "verification.bisect"):
        importlib.import_module(f"tvm_ext.{consumer}")  # else they would keep this one
    module = types.ModuleType("tvm_ext.driver.compile")
    module.compile_model = compile_model
    monkeypatch.setitem(sys.modules, "tvm_ext.driver.compile", module)
    return state


@pytest.fixture
def model(tmp_path):
    """Path of a small ONNX file."""
    return saved(dense_model()[0], tmp_path / "dense.onnx")


@pytest.fixture
def cli(capsys):
    """Runs a command: (exit code, stdout, stderr)."""

    def run(*argv):
        code = main(list(argv))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(cli):
    """Runs a command that ends with an error: what it says of it, and nothing else."""

    def run(*argv, code=2):
        status, out, err = cli(*argv)
        assert status == code and out == "" and "Traceback" not in err, (status, out, err)
        return err

    return run


@pytest.fixture
def cli_json(cli):
    """Runs a command with --json: (exit code, the document)."""

    def run(*argv):
        code, out, _ = cli(*argv, "--json")
        return code, json.loads(out)

    return run
