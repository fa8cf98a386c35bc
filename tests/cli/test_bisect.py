"""`tvm-ext bisect`, and `verify` layer by layer and with things switched off."""

from pathlib import Path

import pytest

from tests.onnx_graphs import saved
from tests.verification.bisect import models
from tests.verification.bisect.planted import BUGS

FEW = ("--threads", "1", "--records", "none", "--no-cache")


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(models.two_dense(), tmp_path_factory.mktemp("bisect") / "dense.onnx")


def test_nothing_wrong_exits_0(cli, cli_json, dense: str) -> None:
    code, out, err = cli("bisect", dense, *FEW)
    assert code == 0 and "nothing is wrong" in out and "trial 0: everything on: agrees" in err
    code, plain = cli_json("bisect", dense, "--by", "pass", *FEW)
    assert code == 0 and plain["status"] == "agrees" and plain["model"] == dense


@pytest.mark.long
def test_a_culprit_exits_1_and_can_be_switched_off(cli, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["packing"].plant(monkeypatch)
    code, out, _ = cli("bisect", dense, "--by", "layer", *FEW)
    assert code == 1 and "the error comes from layer fused_matmul_add" in out
    assert f"tvm-ext verify {dense} --threads 1 --records none --off layer=fused_matmul_add" in out
    assert cli("verify", dense, *FEW)[0] == 1
    assert cli("verify", dense, *FEW, "--off", "layer=fused_matmul_add")[0] == 0


def test_verify_layers(cli, cli_json, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = cli("verify", dense, "--layers", *FEW)
    assert code == 0 and "every kernel agrees" in out and "fc" not in out.splitlines()[1]
    BUGS["packing"].plant(monkeypatch)
    code, plain = cli_json("verify", dense, "--layers", *FEW)
    first = plain["reports"][0]
    assert code == 1 and first["rows"][first["first_bad"]]["nodes"] == ["fc2"]


def test_usage_errors(refused, dense: str, tmp_path: Path) -> None:
    for words, said in (
        (("bisect", dense, "--by", "kernel"), "invalid choice"),
        (("bisect", str(tmp_path / "none.onnx")), "no file"),
        (("verify", dense, "--off", "dense"), "KIND=NAME is needed"),
        (("verify", dense, "--off", "recipe=dens", *FEW), "is no recipe"),
        (("verify", dense, "--artifact", "a.so", "--off", "recipe=dense"), "compiled already"),
    ):
        assert said in refused(*words)
