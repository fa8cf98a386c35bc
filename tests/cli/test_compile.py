"""`tvm-ext compile`."""

from tests.cli.conftest import REPORT
from tests.onnx_graphs import saved
from tests.state_graphs import recurrent


def test_summary_names_tensors_recipes_and_warnings(cli, fake, model):
    code, out, err = cli("compile", model)
    assert code == 0 and err == ""
    for part in ("x: float32 (3, 7)", "/sum: float32 (3, 5)", "2 kernels, 3 launches", "dense-packed", "NaN in weight"):
        assert part in out
    assert "dead-code" not in out


def test_verbose_shows_kernels_and_passes(cli, fake, model):
    out = cli("compile", model, "-v")[1]
    for part in ("a, b, c and 1 more", "tile=4", "pass dead-code: 1 fired, 1 skipped", "y: used"):
        assert part in out


def test_options_reach_the_compiler(cli, fake, model):
    cli("compile", model)
    cli(
        "compile", model, "--shape", "x=N,3", "--shape", "s=", "--specialize", "N=1,8", "--threads", "2",
        "--target", "haswell", "--no-cache", "--records", "a.json", "--records", "b.json",
        "--precision", "bf16", "--max-error", "0.01", "--keep-float32", "a", "--keep-float32", "b",
        "--accuracy", "exact",
    )  # fmt: skip
    default, handed_on = (options for _, options in fake.calls)
    assert default == {}, "defaults are those of CompileOptions"
    assert handed_on == {
        "shapes": {"x": ("N", 3), "s": ()}, "specialize": {"N": (1, 8)}, "threads": 2, "target": "haswell",
        "cache": False, "records": ("a.json", "b.json"), "precision": "bf16", "max_error": 0.01,
        "keep_float32": ("a", "b"), "accuracy": "exact",
    }  # fmt: skip


def test_states_are_marked_among_inputs_and_outputs(cli, cli_json, refused, tmp_path):
    path = saved(recurrent("GRU"), tmp_path / "m.onnx")
    for state in ("auto", "hn=h"):
        out = cli("compile", path, "--state", state)[1]
        assert "h: float32 (1, 2, 20) (state, hn of the call before)" in out
        assert "hn: float32 (1, 2, 20) (state, h of the next call)" in out and "y: float32 (1, 2, 20)\n" in out
        assert cli_json("compile", path, "--state", state)[1]["state"] == {"hn": "h"}
    assert "there is no input 'g'" in refused("compile", path, "--state", "hn=g")


def test_what_precision_came_to_is_printed(cli, fake, model, monkeypatch):
    layers = [
        {"nodes": ["fc1", "bias"], "operator": "matmul", "precision": "bf16", "why": "its operands are rounded"},
        {"nodes": ["fc2"], "operator": "matmul", "precision": "float32", "why": "kept by hand"},
    ]
    monkeypatch.setitem(REPORT, "precision", {"precision": "bf16", "layers": layers, "measured": 0.0123})
    out = cli("compile", model, "--precision", "bf16")[1]
    assert "bf16: 1 of 2 products, 1.2 % of the range as measured" in out
    assert "float32  matmul: fc2: kept by hand" in out and "fc1" not in out
    out = cli("compile", model, "--precision", "bf16", "-v")[1]
    assert "bf16     matmul: fc1, bias: its operands are rounded" in out


def test_no_record_is_an_option_of_its_own(cli, refused, fake, model):
    assert cli("compile", model, "--records", "none")[0] == 0 and fake.calls[0][1]["records"] is None
    assert "none is no log" in refused("compile", model, "--records", "none", "--records", "a.json")


def test_the_artifact_is_written_and_named(cli, cli_json, fake, model, tmp_path):
    path = tmp_path / "m.so"
    assert f"wrote {path}" in cli("compile", model, "-o", str(path))[1] and path.is_file()
    code, plain = cli_json("compile", model, "-o", str(path))
    assert code == 0 and plain["artifact"] == str(path) and plain["report"]["launches"] == 3
    assert plain["inputs"] == [{"name": "x", "shape": [3, 7], "dtype": "float32"}]


def test_what_was_measured_is_printed_and_the_cache_is_filled_first(cli, fake, model, monkeypatch):
    from tvm_ext.tuning import choose

    asked = []
    monkeypatch.setattr(choose, "measure_choices", lambda model, options=None, **_: asked.append(options))
    choice = {"by": "measure", "reason": "measured to be faster than the default", "measured": 3, "candidates": 5,
              "seconds": 1.5e-5, "default_seconds": 2e-5}  # fmt: skip
    monkeypatch.setitem(REPORT["kernels"][0], "choice", choice)
    monkeypatch.setitem(REPORT["kernels"][0], "estimated_us", 17.25)
    code, out, _ = cli("compile", model, "--measure", "--measure-seconds", "3")
    assert code == 0 and (asked[0].choose, asked[0].seconds) == ("measure", 3.0)
    assert fake.calls[0][1]["choose"] == "measure" and fake.calls[0][1]["seconds"] == 3.0
    for part in ("measured 3 of 5", "15.0 us", "20.0 us", "17.2 us", "faster than the default", "by measure"):
        assert part in out
    assert cli("compile", model, "--choose", "measure")[0] == 0 and asked[-2].seconds == 20.0
    assert cli("compile", model)[0] == 0 and "choose" not in fake.calls[-1][1]


def test_seconds_without_measuring_are_an_error(refused, model):
    assert "choose" in refused("compile", model, "--measure-seconds", "3")
