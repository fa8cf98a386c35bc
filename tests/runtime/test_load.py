"""Loading in a fresh process, as a deployment does: no compiler library, no linker, no core of this library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tvm_ext.runtime.model import CompiledModel

from .processes import run_python
from .programs import BIAS, export

RUN_ONCE = """
import json, sys
import numpy as np
from tvm_ext.runtime.model import load

x = np.load(sys.argv[2])
y = load(sys.argv[1]).run({"x": x})["y"]
rooms = sorted({name.split(".")[1] for name in sys.modules if name.startswith("tvm_ext.")})
libraries = open("/proc/self/maps").read()
print(json.dumps({
    "rooms": rooms, "compiler": "libtvm_compiler" in libraries, "relax": "tvm.relax" in sys.modules,
    "onnx": "onnx" in sys.modules, "y": y.tolist(),
}))
"""


def run_once(path: Path, tmp_path: Path, **environ: str) -> dict:
    x = np.random.default_rng(1).standard_normal((16, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    found = json.loads(run_python(RUN_ONCE, path, tmp_path / "x.npy", **environ))
    np.testing.assert_array_equal(np.array(found["y"], np.float32), x + BIAS)
    return found


def test_runtime_only_without_a_compiler(bias_model: CompiledModel, tmp_path: Path) -> None:
    found = run_once(export(bias_model, tmp_path / "m.so"), tmp_path, TVM_USE_RUNTIME_LIB="1", PATH="")
    assert not found["compiler"] and not found["relax"] and not found["onnx"]
    assert found["rooms"] == ["core", "runtime"]


def test_full_import(bias_model: CompiledModel, tmp_path: Path) -> None:
    found = run_once(export(bias_model, tmp_path / "m.so"), tmp_path, PATH="")
    assert found["compiler"] and not found["onnx"]


def test_a_parallel_model_loads_the_same_way(rows_model: CompiledModel, tmp_path: Path) -> None:
    text = RUN_ONCE.replace("y.tolist()", "float(y.sum())")
    x = np.ones((33, 257), np.float32)
    np.save(tmp_path / "x.npy", x)
    path = export(rows_model, tmp_path / "m.so")
    found = json.loads(run_python(text, path, tmp_path / "x.npy", TVM_USE_RUNTIME_LIB="1", PATH=""))
    assert found["y"] == np.float32(rows_model.run(x)["y"].sum())
