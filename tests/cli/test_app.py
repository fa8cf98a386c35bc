"""The command itself: help, exit codes, errors, start-up."""

import ast
import inspect
import json
import pathlib
import re
import subprocess
import sys

import pytest

import tvm_ext
from tvm_ext.cli.app import VERBS, main
from tvm_ext.cli.shared.common import Progress
from tvm_ext.core.errors import PassError, ToolError, UnsupportedError
from tvm_ext.runtime.model import CompiledModel

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python(*argv, **kwargs):
    options = {"capture_output": True, "text": True, "cwd": ROOT, "timeout": 120, "stdin": subprocess.DEVNULL}
    return subprocess.run([sys.executable, *argv], **options, **kwargs)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_json(cli, verb):
    code, out, err = cli(verb, "--help")
    assert code == 0 and not err
    assert f"  tvm-ext {verb}" in out.partition("example:")[2] and "--json" in out


def test_help_names_every_verb_and_the_exit_codes(cli):
    code, out, _ = cli("--help")
    assert code == 0 and all(f"    {verb} " in out for verb in VERBS) and "3 unsupported" in out


def test_version(cli):
    assert cli("--version") == (0, f"tvm-ext {tvm_ext.__version__}\n", "")


@pytest.mark.parametrize(
    "argv",
    [
        [], ["fly"], ["compile"], ["run", "m.onnx", "--input", "x.npy"], ["cache", "burn"],
        ["bench", "m.onnx", "--against", "tensorrt"], ["compile", "m.onnx", "--thr", "2"],
    ],
)  # fmt: skip
def test_usage_errors_exit_2_and_print_nothing_on_stdout(refused, argv):
    assert "usage:" in refused(*argv)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnsupportedError("node 'q' (Foo): no converter", fix="rewrite it"), 3),
        (ToolError("no linker", fix="install gcc"), 1),
        (PassError("pass 'x' failed"), 1),
        (ZeroDivisionError("oops"), 1),
    ],
)
def test_errors_are_one_message_and_an_exit_code(refused, fake, model, error, code):
    fake.raises = error
    said = refused("compile", model, code=code)
    assert said.startswith("error: ") and str(getattr(error, "message", error)) in said


def test_debug_shows_the_traceback(cli, fake, model):
    fake.raises = ZeroDivisionError("oops")
    assert "Traceback" in cli("compile", model, "--debug")[2]


def test_json_errors_are_documents(cli_json, fake):
    code, plain = cli_json("compile", "m.missing")
    assert code == 2 and plain["ok"] is False
    assert plain["error"] == {
        "type": "ModelError", "message": "m.missing: no such file", "fix": "give the path of an ONNX file",
    }  # fmt: skip


def test_interrupts_and_lost_readers_are_quiet(monkeypatch, capsys):
    for error, code in ((KeyboardInterrupt, 130), (BrokenPipeError, 141)):

        def run(args, error=error):
            raise error

        monkeypatch.setattr(VERBS["doctor"], "run", run)
        assert main(["doctor"]) == code
        assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_ends_quietly():
    code = "import sys; sys.argv = ['tvm-ext', '--help']; from tvm_ext.cli import main; sys.exit(main())"
    head = subprocess.Popen(
        f"{sys.executable} -c \"{code}\" | true; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, err = head.communicate(timeout=60)
    assert err == "" and head.returncode in (0, 141)


HEAVY = ("tvm", "tvm_ffi", "onnx", "onnxruntime", "numpy", "scipy")


@pytest.mark.parametrize(
    "code", ["import tvm_ext; tvm_ext.errors; tvm_ext.CompileOptions; tvm_ext.__version__; dir(tvm_ext)",
             "from tvm_ext.cli import main; main(['--help'])"],
)  # fmt: skip
def test_start_up_imports_nothing_heavy(code):
    done = python("-c", f"{code}\nimport sys; print(sorted(set(sys.modules) & set({HEAVY})), file=sys.stderr)")
    assert done.returncode == 0 and done.stderr.strip() == "[]"


def test_the_module_is_the_command():
    done = python("-m", "tvm_ext.cli", "frobnicate")
    assert done.returncode == 2 and "invalid choice: 'frobnicate'" in done.stderr


def test_progress_is_silent_at_first_and_then_says_what_and_how_long(capsys, monkeypatch):
    import time

    with Progress("quick"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(Progress, "first", 0.01)
    told = ""
    with Progress("slow") as progress:
        while "\n" not in told:  # a hang is a failure
            time.sleep(0.01)
            out, err = capsys.readouterr()
            told += out + err
        progress.tell("later")
    assert re.match(r"slow \.\.\. \d+ s\n", told)


def test_public_names_have_full_docstrings():
    assert set(tvm_ext.__all__) <= set(dir(tvm_ext))
    tree = ast.parse((ROOT / "tvm_ext" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node)
            assert all(
                f"{part}:" in text for part in ("Args", "Returns" if node.name != "load" else "Raises", "Raises")
            )
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        _ = tvm_ext.compil


def undescribed(name, value):
    """Parameters of a public function, or of the methods of a class, that its docstring does not name."""
    methods = vars(value).items() if inspect.isclass(value) else ()
    functions = [(name, value), *((f"{name}.{key}", getattr(value, key)) for key, _ in methods if key[0] != "_")]
    for label, function in functions:
        if callable(function):
            names = inspect.signature(function).parameters.keys() - {"self"}
            yield from (
                f"{label}: {key}" for key in names if not re.search(rf"\b{key}\b", inspect.getdoc(function) or "")
            )


def test_every_parameter_of_a_public_function_is_described():
    public = {**{name: getattr(tvm_ext, name) for name in tvm_ext.__all__}, "CompiledModel": CompiledModel}
    assert not [text for name, value in public.items() if callable(value) for text in undescribed(name, value)]
    assert list(undescribed("f", lambda depth: depth)) == ["f: depth"]


def test_every_json_document_is_one_document(cli, fake, model):
    for argv in (["compile", model], ["run", model], ["verify", model]):
        code, out, err = cli(*argv, "--json")
        assert code == 0 and err == "" and json.loads(out)["ok"] is True
