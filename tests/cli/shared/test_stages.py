"""`tvm-ext compile` looking inside: --ir, --dump-dir, --to, --from, --html, -vv, --timing."""

import json

import pytest

from tests.inspection import stage_models
from tests.onnx_graphs import saved


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return saved(stage_models.tiny(), tmp_path_factory.mktemp("model") / "tiny.onnx")


def test_one_stage_is_printed_alone(cli, path):
    code, out, _ = cli("compile", path, "--ir", "grouped")
    assert code == 0 and out.startswith("# Stage 'grouped' of tiny.onnx") and "kernels" not in out.splitlines()[-1]
    code, out, _ = cli("compile", path, "--ir", "onnx", "--json")
    assert code == 0 and json.loads(out)["ir"].count("Gemm") == 1


def test_stop_and_go_on(cli, refused, path, tmp_path):
    stage, artifact = tmp_path / "stage.py", tmp_path / "model.so"
    assert cli("compile", path, "--to", "layout", "-o", str(stage))[:2] == (0, f"wrote {stage}\n")
    code, out, _ = cli("compile", "--from", str(stage), "-o", str(artifact), "--timing", "-v", "--only", "lower-rest")
    assert code == 0 and "dense" in out and f"wrote {artifact}" in out and "#" * 30 in out
    assert "pass lower-rest: 1 fired" in out and "pass lift-weights:" not in out
    stage.write_text(stage.read_text().replace("@I.ir_module", "@I.ir_modul"))
    said = refused("compile", "--from", str(stage))
    assert f"{stage}:" in said and "fix:" in said


@pytest.mark.long
def test_all_stages_and_the_page(cli, refused, path, tmp_path):
    code, out, _ = cli("compile", path, "--dump-dir", str(tmp_path / "stages"))
    assert code == 0 and [line.rpartition("/")[2] for line in out.splitlines()][::7] == ["01_onnx.txt", "08_asm.s"]
    assert cli("compile", path, "--html", str(tmp_path / "page.html"))[0] == 0
    assert "Stage scheduled" in (tmp_path / "page.html").read_text()
    assert "cannot be written" in refused("compile", path, "--html", str(tmp_path), code=1)


def test_passes_as_diffs(cli, path):
    code, out, _ = cli("compile", path, "-vv", "--only", "group-operations", "--timing")
    assert code == 0 and "--- before/main" in out and "+++ after/fused_matmul_add_relu_multiply" in out
    assert "pass 1 " not in out and "20 group-operations" in out
    code, out, _ = cli("compile", path, "-vv", "--only", "fold", "--json")
    assert code == 2 and "no pass 'fold' ran" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "one of the arguments MODEL --from is required"),
        (("x.onnx", "--from", "y.py"), "argument --from: not allowed with argument MODEL"),
        (("x.onnx", "--ir", "asm", "--dump-dir", "d"), "--ir and --dump-dir: one at a time"),
        (("x.onnx", "--to", "layout"), "--to layout without -o"),
        (("x.onnx", "--ir", "asm", "-o", "x.so"), "-o with --ir"),
        (("x.onnx", "--ir", "asm", "--timing"), "--timing with --ir, which builds nothing"),
        (("x.onnx", "--only", "offload"), "--only without -v"),
        (("x.onnx", "--to", "program", "-o", "p.txt"), "--to program without --offload"),
        (("--from", "y.py", "--threads", "1", "--no-cache"), "--from y.py is compiled already: --threads, --no-cache"),
        (("--from", "y.py", "-vv"), "diffs are of a whole compile"),
        (("--from", "y.py"), "there is no file 'y.py'"),
    ],
)
def test_what_does_not_go_together(refused, flags, message):
    assert message in refused("compile", *flags)


def test_help_says_that_stage_files_are_run(cli):
    code, out, _ = cli("compile", "--help")
    text = " ".join(out.split())
    assert code == 0 and "--from runs the file it is given" in text and "go on only" in text
