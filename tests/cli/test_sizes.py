"""`--size`: of the verbs that run a model of symbolic sizes, on a program of any size and with replaced harnesses."""

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import model as make_model
from tests.onnx_graphs import node, random, saved, value
from tests.verification.fakes import dense_model

VERBS = ("run", "verify", "bench", "profile")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Path of x[N, S, 7] w."""
    proto = make_model([node("MatMul", "x w", "y")], [value("x", ["N", "S", 7])], [value("y", ["N", "S", 5])],
                       {"w": random(7, 5)})  # fmt: skip
    return saved(proto, tmp_path_factory.mktemp("sizes") / "free.onnx")


@pytest.fixture(scope="module")
def artifact(model):
    """The model for N from 1 to 4 and S from 2 to 20, exported."""
    path = model.replace(".onnx", ".so")
    tvm_ext.compile(model, dims={"N": (1, 4), "S": (2, 20)}, threads=1, records=None, cache=False).export(path)
    return path


def test_run_takes_a_size_or_the_largest(refused, cli_json, artifact):
    assert cli_json("run", artifact, "--size", "N=3,S=11")[1]["outputs"][0]["shape"] == [3, 11, 5]
    assert cli_json("run", artifact)[1]["outputs"][0]["shape"] == [4, 20, 5]
    said = refused("run", artifact, "--size", "N=3,S=21")
    assert "S is 21; it can be 2 to 20" in said and "dims={'S': (2, 21)}" in said
    said = refused("run", artifact, "--size", "N=3")
    assert "the size of each of ['N', 'S'] is needed" in said and "N=1, S=2" in said


def test_verify_takes_several(cli_json, refused, artifact, model):
    code, plain = cli_json("verify", model, "--artifact", artifact, "--size", "N=1,S=2", "--size", "S=9,N=2")
    assert code == 0 and [row["name"] for row in plain["reports"][0]["outputs"]] == ["y (N 1, S 2)", "y (N 2, S 9)"]
    assert "shapes=" in refused("verify", model, "--artifact", artifact, "--layers", code=3)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", ["N", "N=", "N=-1", "N=1.5", "N=1,N=2", "=3", ""])
def test_what_is_no_size_is_a_usage_error(refused, model, verb, text):
    said = refused(verb, model, "--size", text)
    assert "--size" in said and "N=3,S=37" in said


@pytest.mark.parametrize("verb", VERBS)
def test_inputs_have_sizes_of_their_own(refused, model, tmp_path, verb):
    np.save(tmp_path / "x.npy", random(2, 3, 7))
    assert "--size and --input" in refused(verb, model, "--size", "N=2,S=3", "--input", f"x={tmp_path / 'x.npy'}")


def test_a_model_of_numbers_has_no_sizes(refused, fake, tmp_path):
    path = saved(dense_model()[0], tmp_path / "dense.onnx")
    for verb in ("run", "verify"):
        assert "no symbolic dimension" in refused(verb, path, "--size", "N=3")


def test_sizes_reach_the_harnesses(cli, refused, model, monkeypatch):
    from tvm_ext.benchmarking import benchmark as harness

    calls = []

    def stop(*_, **options):
        calls.append(options["sizes"])
        raise KeyboardInterrupt

    monkeypatch.setattr(harness, "benchmark", stop)
    monkeypatch.setattr(tvm_ext, "profile", stop)
    for verb in ("bench", "profile"):
        assert cli(verb, model, "--size", "N=3,S=4")[0] == 130
        assert cli(verb, model)[0] == 130
    assert calls == [{"N": 3, "S": 4}, None] * 2
    assert "--size" in refused("profile", model, "--estimate", "--size", "N=3,S=4")
