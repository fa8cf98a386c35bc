"""Outputs whose size values decide, wherever a model is run: files, sessions, verify, any size, the command line."""

import contextlib
import dataclasses
import io
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.frontend.graphs import run_onnxruntime
from tests.onnx_graphs import model, node, random, saved, value
from tvm_ext.cli import main
from tvm_ext.core.errors import ArtifactError, OptionError
from tvm_ext.inspection.dump import StageWarning
from tvm_ext.runtime.consistency import check_consistency
from tvm_ext.runtime.interface import Count
from tvm_ext.runtime.model import CompiledModel

I64 = TensorProto.INT64
X = np.array([[1, 0, 2], [0, 0, -3]], np.float32)


def counting(*shape: int | str) -> onnx.ModelProto:
    """y = relu(x) and the places z where it is not 0, both ways."""
    nodes = [node("Relu", "x", "y"), node("NonZero", "y", "z"), node("Identity", "z", "again")]
    return model(nodes, [value("x", shape)], [value("z", None, I64), value("y", shape), value("again", None, I64)])


def check(outputs: Any, x: np.ndarray = X) -> None:
    """Outputs in order, or by name."""
    wanted = run_onnxruntime(counting(*x.shape), {"x": x})
    for mine, reference in zip(outputs.values() if isinstance(outputs, dict) else outputs, wanted, strict=True):
        np.testing.assert_array_equal(mine, reference)
        assert mine.dtype == reference.dtype and not np.shares_memory(mine, x)


@pytest.fixture(scope="module")
def program() -> CompiledModel:
    return tvm_ext.compile(counting(2, 3), cache=False, threads=1)


def test_outputs_have_a_name_for_the_size_and_callers_see_no_count(program: CompiledModel) -> None:
    check(program.run(X))
    assert [spec.shape for spec in program.outputs] == [(2, "z_count"), (2, 3), (2, "z_count")]
    assert len(program.metadata.outputs) == 4
    for x in (np.zeros_like(X), np.ones_like(X), X):
        check(program.run(x), x)
    seen: list[str] = []
    check(program.run_observed({"x": X}, lambda name, before: seen.append(name)))
    assert seen


def test_files_pickles_and_stages(program: CompiledModel, tmp_path: Path) -> None:
    program.export(tmp_path / "model.so")
    loaded = tvm_ext.load(tmp_path / "model.so")
    assert loaded.outputs == program.outputs
    check(loaded.run(X))
    check(pickle.loads(pickle.dumps(program)).run(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", StageWarning)
        paths = tvm_ext.inspect(counting(2, 3)).dump(tmp_path)
    stages = [path for path in paths if path.name.endswith("grouped.py")]
    check(tvm_ext.resume(stages[0]).run(X))


def test_sessions_and_bindings() -> None:
    session = tvm_ext.InferenceSession(counting(2, 3), cache=False)
    assert [arg.shape for arg in session.get_outputs()] == [[2, "z_count"], [2, 3], [2, "z_count"]]
    check(session.run(None, {"x": X}))
    (z,) = session.run(["z"], {"x": X})
    assert z.shape == (2, 2)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    for name in ("z", "y", "again"):
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    check(binding.copy_outputs_to_cpu())


def test_verify_compares_as_much_as_there_is(program: CompiledModel) -> None:
    assert tvm_ext.verify(program, counting(2, 3), {"x": X}).ok
    layers = tvm_ext.verify(program, counting(2, 3), {"x": X}, layers=True)
    assert layers.ok and {row.value for row in layers.rows if row.value} == {"y"}


def test_the_command_line(tmp_path: Path) -> None:
    path = saved(counting(2, 3), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "out.npz"
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        assert main(["run", path, "--input", f"x={tmp_path}/x.npy", "-o", str(out), "--no-cache", "--json"]) == 0
        with np.load(out) as arrays:
            check([arrays[name] for name in ("z", "y", "again")])
    shapes = {output["name"]: output["shape"] for output in json.loads(stdout.getvalue())["outputs"]}
    assert shapes == {"z": [2, 2], "y": [2, 3], "again": [2, 2]}


def test_any_size() -> None:
    program = tvm_ext.compile(counting("A", "B"), cache=False, threads=1, dims={"A": (1, 12), "B": (1, 20)})
    assert program.outputs[0].shape == (2, "z_count") and program.outputs[1].shape == ("A", "B")
    for shape in ((1, 1), (12, 20), (5, 7), (2, 20), (12, 1)):
        check(program.run(x := random(*shape)), x)
    assert tvm_ext.verify(program, counting("A", "B")).ok


def test_it_is_no_state() -> None:
    proto = model([node("NonZero", "x", "z")], [value("x", [1, 6], I64)], [value("z", None, I64)])
    with pytest.raises(OptionError, match="values decide the size of output 'z'"):
        tvm_ext.compile(proto, state={"z": "x"})


@pytest.mark.parametrize("count", [Count(0, 9), Count(2, 3), Count(1, 1), Count(-1, 3)])
def test_a_count_that_is_none_is_a_damaged_file(program: CompiledModel, count: Count) -> None:
    first, *others = program.metadata.outputs
    damaged = dataclasses.replace(program.metadata, outputs=(dataclasses.replace(first, count=count), *others))
    with pytest.raises(ArtifactError, match="'outputs'"):
        check_consistency(damaged)
