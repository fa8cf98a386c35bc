"""`tvm-ext run`."""

import numpy as np

from tests.verification.fakes import dense_model


def test_outputs_are_summed_up(cli, cli_json, fake, model):
    code, out, _ = cli("run", model)
    assert code == 0 and "/sum" in out and "float32" in out
    code, plain = cli_json("run", model, "--seed", "3")
    first = plain["outputs"][0]
    assert code == 0 and first["name"] == "file" and first["shape"] == [3, 5] and first["not_finite"] == 0


def test_given_inputs_and_saved_outputs(cli, fake, model, tmp_path):
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    np.save(tmp_path / "x.npy", x)
    files = ("-o", f"{tmp_path}/out.npz", "--output-dir", f"{tmp_path}/d")
    assert cli("run", model, "--input", f"x={tmp_path}/x.npy", *files)[0] == 0
    expected = x @ dense_model()[1]
    with np.load(tmp_path / "out.npz") as saved:
        np.testing.assert_array_equal(saved["file"], expected)
        np.testing.assert_array_equal(saved["/sum"], -expected)
    np.testing.assert_array_equal(np.load(tmp_path / "d" / "_sum.npy"), -expected)


def test_outputs_of_alike_names_have_files_of_their_own(cli_json, fake, model, tmp_path, monkeypatch):
    outputs = {"a/b": np.float32(1), "a_b": np.float32(2), "a_b_": np.float32(3)}
    monkeypatch.setattr("tests.verification.fakes.FakeCompiled.run", lambda *_: outputs)
    code, plain = cli_json("run", model, "--output-dir", str(tmp_path))
    assert code == 0 and [float(np.load(path)) for path in plain["written"]] == [1, 2, 3]


def test_an_input_stands_there_once(cli, fake, model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 7), "f4"))
    code, _, err = cli("run", model, *["--input", f"x={tmp_path}/x.npy"] * 2)
    assert code == 2 and "--input x is there twice" in err and not fake.calls


def test_seeds_change_the_inputs(cli_json, fake, model):
    outputs = [cli_json("run", model, "--seed", seed)[1]["outputs"] for seed in ("0", "1", "0")]
    assert outputs[0] == outputs[2] != outputs[1]


def test_an_artifact_takes_no_compile_options(refused, fake, tmp_path):
    path = tmp_path / "m.so"
    path.write_bytes(b"\x7fELF")
    for flags in (["--threads", "2"], ["--precision", "bf16"], ["--accuracy", "exact"], ["--no-cache"],
                  ["--freeze", "k=1"], ["--offload", "systolic"]):  # fmt: skip
        assert f"is compiled already: {flags[0]} cannot be changed" in refused("run", str(path), *flags)
    assert not fake.calls


def test_bad_files_exit_2(refused, fake, model, tmp_path):
    (tmp_path / "x.npy").write_bytes(b"nonsense")
    assert "x.npy" in refused("run", model, "--input", f"x={tmp_path}/x.npy")
    assert "none.so" in refused("run", str(tmp_path / "none.so"))
