"""The verb profile: arguments, files it writes, comparisons and their exit codes. The profiler is replaced."""

import json
from dataclasses import replace

import pytest

import tvm_ext
from tests.inspection.profile.fakes import around, launch, profile, sample
from tvm_ext.inspection.profile import Profile


@pytest.fixture
def profiler(monkeypatch):
    """Gives the sample; what it was called with is in the list."""
    calls = []

    def fake(model, inputs, **options):
        calls.append((model, inputs, options))
        return sample()

    monkeypatch.setattr(tvm_ext, "profile", fake)
    return calls


def test_rows_go_to_stdout_and_files_where_they_are_asked_for(cli, profiler, model, tmp_path):
    out, trace, line = (tmp_path / name for name in ("p.json", "t.json", "r.svg"))
    files = ("-o", str(out), "--trace", str(trace), "--trace-runs", "2", "--roofline", str(line))
    code, stdout, _ = cli("profile", model, "-v", *files)
    assert code == 0 and "relu, fc1" in stdout and "512-bit" in stdout and f"wrote {trace}" in stdout
    assert Profile.load(out).launches == sample().launches
    assert len({event["pid"] for event in json.loads(trace.read_text())["traceEvents"]}) == 2
    assert line.read_text().startswith("<svg")


def test_options_reach_the_profiler(cli, profiler, model):
    assert cli("profile", model, "--rounds", "9", "--batch", "4", "--no-code", "--threads", "1")[0] == 0
    (_, inputs, options) = profiler[0]
    assert inputs is None and options["rounds"] == 9 and options["batch"] == 4 and options["code"] is False
    assert options["threads"] == 1


def test_groups_top_and_text_roofline(cli, profiler, model):
    code, stdout, _ = cli("profile", model, "--group-by", "recipe", "--top", "1", "--roofline", "-")
    assert code == 0 and "other launches" in stdout and "by recipe on the roofline" in stdout


def test_json_has_the_profile_and_the_rows(cli_json, profiler, model):
    code, result = cli_json("profile", model, "--group-by", "kernel", "--top", "2")
    assert code == 0 and result["ok"] and len(result["rows"]) == 2 and result["rows"][0]["label"] == "dense"
    assert len(result["launches"]) == 5


@pytest.fixture
def files(tmp_path):
    """Profiles before, after, and of another model."""
    profiles = {
        "before": profile([launch(1, "dense", ["fc"], around(1e-3))]),
        "after": profile([launch(1, "dense", ["fc"], around(1.2e-3))]),
        "other": replace(profile([launch(1, "d", ["z"], around(1e-3))]), model="big", sha256="b" * 64),
    }
    for name in profiles:
        profiles[name].save(tmp_path / f"{name}.json")
    return [str(tmp_path / f"{name}.json") for name in profiles]


def test_a_regression_fails_with_its_rows(cli, cli_json, files):
    before, after, _ = files
    code, stdout, _ = cli("profile", "--compare", before, after, "--fail-on-regress", "5")
    assert code == 1 and "slower by more than 5 %" in stdout and "dense (fc): 1.200 of before" in stdout
    code, result = cli_json("profile", "--compare", before, after, "--fail-on-regress", "5")
    assert code == 1 and not result["ok"] and [r["label"] for r in result["regressions"]] == ["whole run", "dense"]
    assert cli("profile", "--compare", before, after, "--fail-on-regress", "30")[0] == 0
    assert cli("profile", "--compare", after, before, "--fail-on-regress", "0")[0] == 0
    code, stdout, _ = cli("profile", "--compare", before, after)
    assert code == 0 and "slower" in stdout, "without a limit it only tells"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a model, or --compare"),
        (("m.onnx", "--compare", "a", "b"), "give a model, or --compare"),
        (("m.onnx", "--fail-on-regress", "5"), "--fail-on-regress without --compare"),
        (("m.onnx", "--top", "-1"), "--top -1"),
        (("--compare", "none.json", "none.json"), "cannot read 'none.json'"),
        (("m.onnx", "--group-by", "layer"), "invalid choice: 'layer'"),
    ],
)
def test_wrong_arguments_are_usage_errors(refused, profiler, arguments, message):
    assert message in refused("profile", *arguments)


def test_different_models_are_refused(refused, files):
    assert "different models" in refused("profile", "--compare", files[0], files[2])


def test_an_artifact_takes_no_options_of_the_compiler(refused, tmp_path):
    artifact = tmp_path / "small.so"
    artifact.write_bytes(b"\x7fELF and more")
    said = refused("profile", str(artifact), "--accuracy", "exact")
    assert "options accuracy for a model that is compiled already" in said


def test_estimates_of_a_described_machine_run_nothing(cli, cli_json, profiler):
    code, stdout, _ = cli("profile", "zoo:mlp", "--machine", "cluster16-zen4", "--estimate")
    assert code == 0 and "16 threads" in stdout and "dense" in stdout
    code, result = cli_json("profile", "zoo:mlp", "--machine", "cluster16-zen4", "--estimate")
    assert code == 0 and result["ok"] and result["machine"] == "cluster16-zen4" and len(result["rows"]) == 3
    assert list(result["fewer"]) == ["1", "2", "4", "8", "16"]
    assert not profiler


def test_an_estimate_has_no_use_for_arguments_of_a_measurement(refused, model, tmp_path):
    assert "--output" in refused("profile", model, "--estimate", "-o", str(tmp_path / "p.json"))
    assert not (tmp_path / "p.json").exists()
