"""The verbs with the real compiler on a tiny model."""

import json

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, saved, value
from tests.runtime.processes import run_python
from tvm_ext.core.errors import InputError
from tvm_ext.verification.selftest import tiny_model

pytestmark = pytest.mark.usefixtures("cache_folder")


@pytest.fixture
def tiny(tmp_path):
    return saved(tiny_model(), tmp_path / "tiny.onnx")


def test_compile_verify_run_an_artifact(cli, cli_json, tiny, tmp_path):
    artifact, saved = str(tmp_path / "tiny.so"), str(tmp_path / "y.npz")
    code, plain = cli_json("compile", tiny, "-o", artifact, "--threads", "2")
    assert code == 0 and plain["threads"] == 2 and plain["inputs"][0] == {
        "name": "x", "shape": [1, 3, 9, 7], "dtype": "float32",
    }  # fmt: skip
    nodes = {node for kernel in plain["report"]["kernels"] for node in kernel["nodes"]}
    assert {"Conv:conv", "Relu:relu", "GlobalAveragePool:pool", "Gemm:y"} <= nodes
    assert plain["report"]["launches"] == sum(kernel["calls"] for kernel in plain["report"]["kernels"])
    code, plain = cli_json("verify", tiny, "--artifact", artifact, "--seed", "0", "5")
    assert code == 0 and all(r["outputs"][0]["of_range"] < 1e-6 for r in plain["reports"])
    assert cli("run", artifact, "--seed", "5", "-o", saved)[0] == 0
    with np.load(saved) as outputs:
        assert outputs["y"].shape == (1, 5) and np.isfinite(outputs["y"]).all()


def test_the_summary_and_the_second_compile_from_the_cache(cli, cli_json, tiny):
    code, out, err = cli("compile", tiny, "-v")
    assert code == 0 and "launches per inference" in out and "pass " in out and err == ""
    assert cli_json("cache", "ls")[1]["entries"][0]["model"] == "tiny.onnx"
    assert cli("compile", tiny)[0] == 0
    assert cli_json("cache", "clear")[1]["removed"] == 1


def test_verify_without_an_artifact(cli, tiny):
    code, out, _ = cli("verify", tiny, "--no-cache")
    assert code == 0 and "ok: every output agrees" in out


def test_an_unsupported_node_exits_3_and_is_named(refused, tmp_path):
    nodes = [node("Frobnicate", "x", "y", "odd", domain="some.where")]
    proto = model(nodes, [value("x", [2, 2])], [value("y", [2, 2])], domains=["some.where"])
    assert "Frobnicate" in refused("compile", saved(proto, tmp_path / "m.onnx"), code=3)


def test_bad_models_and_artifacts_exit_2(refused, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    (tmp_path / "bad.so").write_bytes(b"\x7fELF and nothing else")
    for verb, file in (("compile", "bad.onnx"), ("run", "bad.so"), ("verify", "none.onnx")):
        assert file in refused(verb, str(tmp_path / file))


def test_verify_of_a_compiled_model_checks_names(tiny):
    compiled = tvm_ext.compile(tiny)
    with pytest.raises(InputError, match="'z'"):
        tvm_ext.verify(compiled, tiny, {"z": np.zeros(1)})
    assert tvm_ext.verify(compiled, tiny, {"x": np.zeros((1, 3, 9, 7), np.float32)}).ok


def test_the_command_in_a_process_of_its_own(tiny):
    text = "import runpy; runpy.run_module('tvm_ext.cli', run_name='__main__', alter_sys=True)"
    assert json.loads(run_python(text, "verify", tiny, "--json"))["ok"] is True


def test_doctor_finds_nothing_wrong_here(cli_json):
    code, plain = cli_json("doctor")
    failed = [check for check in plain["checks"] if check["status"] == "fail"]
    names = {check["name"] for check in plain["checks"]}
    assert code == 0 and not failed
    assert {"Python", "apache-tvm-ffi", "linker", "machine", "cache", "self-test"} <= names
