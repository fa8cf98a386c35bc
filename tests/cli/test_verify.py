"""`tvm-ext verify`."""

import numpy as np


def test_agreement_exits_0(cli, fake, model):
    code, out, _ = cli("verify", model, "--seed", "0", "1")
    assert code == 0 and out.count("ok: every output agrees") == 2 and "inputs of seed 1" in out


def test_disagreement_exits_1_and_names_the_output(cli, cli_json, fake, model):
    fake.error = 0.1
    code, out, _ = cli("verify", model)
    assert code == 1 and "NOT OK" in out and "worst: file[" in out
    code, plain = cli_json("verify", model)
    assert code == 1 and plain["ok"] is False and plain["reports"][0]["worst"] == "file"
    assert cli("verify", model, "--tolerance", "0.5")[0] == 0


def test_given_inputs(cli, fake, model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 7), np.float32))
    code, out, _ = cli("verify", model, "--input", f"x={tmp_path}/x.npy")
    assert code == 0 and "given inputs" in out
