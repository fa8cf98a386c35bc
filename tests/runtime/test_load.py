"""Loading in a fresh process, as a deployment does: no compiler library, no linker, no Python package `tvm`."""

import json
from pathlib import Path

import numpy as np
import pytest

from tvm_ext.runtime.model import CompiledModel

from .processes import run_python
from .programs import BIAS, export, model

RUN_ONCE = """
import json, sys
if sys.argv[3:] == ["tvm first"]:
    import tvm
import numpy as np
from tvm_ext.runtime.model import load

x = np.load(sys.argv[2])
y = load(sys.argv[1]).run({"x": x})["y"]
rooms = sorted({name.split(".")[1] for name in sys.modules if name.startswith("tvm_ext.")})
libraries = open("/proc/self/maps").read()
print(json.dumps({
    "rooms": rooms, "compiler": "libtvm_compiler" in libraries, "relax": "tvm.relax" in sys.modules,
    "onnx": "onnx" in sys.modules, "tvm": "tvm" in sys.modules, "y": y.tolist(),
}))
"""


def run_once(path: Path, tmp_path: Path, *arguments: str, **environ: str) -> dict:
    x = np.random.default_rng(1).standard_normal((16, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    answer = json.loads(run_python(RUN_ONCE, path, tmp_path / "x.npy", *arguments, **environ))
    np.testing.assert_array_equal(np.array(answer["y"], np.float32), x + BIAS)
    return answer


@pytest.mark.parametrize("runtime_only", ["0", "1"])
def test_loading_needs_no_compiler(bias_model: CompiledModel, tmp_path: Path, runtime_only: str) -> None:
    answer = run_once(export(bias_model, tmp_path / "m.so"), tmp_path, TVM_USE_RUNTIME_LIB=runtime_only, PATH="")
    assert not (answer["compiler"] or answer["tvm"] or answer["onnx"])
    assert answer["rooms"] == ["core", "runtime"]


@pytest.mark.parametrize("runtime_only", ["0", "1"])
def test_with_tvm_imported_before(bias_model: CompiledModel, tmp_path: Path, runtime_only: str) -> None:
    path = export(bias_model, tmp_path / "m.so")
    answer = run_once(path, tmp_path, "tvm first", TVM_USE_RUNTIME_LIB=runtime_only, PATH="")
    assert answer["compiler"] == answer["relax"] == (runtime_only == "0")


TVM_LATER = """
import sys
import numpy as np
from tvm_ext.runtime.model import load

loaded = load(sys.argv[1])
x = np.ones((16, 32), np.float32)
before = loaded.run(x)["y"]
assert "tvm" not in sys.modules
import tvm
from tests.runtime.programs import add_bias, scale_rows

assert np.array_equal(loaded.run(x)["y"], before)
assert np.array_equal(load(sys.argv[1]).run(x)["y"], before)
assert np.array_equal(add_bias().run(x)["y"], before)
assert scale_rows().run(np.zeros((33, 257), np.float32))["y"][0, 0] == 1
print(tvm.runtime.tensor(x).numpy().sum())
"""


def test_with_tvm_imported_later(bias_model: CompiledModel, tmp_path: Path) -> None:
    """The same process then compiles."""
    assert run_python(TVM_LATER, export(bias_model, tmp_path / "m.so")) == "512.0"


ODD_DTYPES = """
import sys
import numpy as np
from tvm_ext.runtime.model import load

for value in load(sys.argv[1]).run().values():
    print(value.dtype, value.shape, value.tolist())
"""


def test_odd_dtypes_in_a_fresh_process(tmp_path: Path) -> None:
    import ml_dtypes

    weights = {"half": np.array([1.5, 2], ml_dtypes.bfloat16), "empty": np.zeros((0, 3), np.float32)}
    specs = [(name, array.shape, str(array.dtype)) for name, array in weights.items()]
    path = export(model(lambda b, *w: tuple(w), [], specs, weights), tmp_path / "m.so")
    assert run_python(ODD_DTYPES, path, TVM_USE_RUNTIME_LIB="1") == "bfloat16 (2,) [1.5, 2.0]\nfloat32 (0, 3) []"


def test_a_parallel_model_loads_the_same_way(rows_model: CompiledModel, tmp_path: Path) -> None:
    text = RUN_ONCE.replace("y.tolist()", "float(y.sum())")
    x = np.ones((33, 257), np.float32)
    np.save(tmp_path / "x.npy", x)
    path = export(rows_model, tmp_path / "m.so")
    answer = json.loads(run_python(text, path, tmp_path / "x.npy", TVM_USE_RUNTIME_LIB="1", PATH=""))
    assert answer["y"] == np.float32(rows_model.run(x)["y"].sum())
