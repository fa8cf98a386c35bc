"""Offloading on the command line: `--offload`, `--offload-option`, `--import`, `--offload-report`, `--ir program`."""

import sys

import pytest

from tests.onnx_graphs import model as make_model
from tests.onnx_graphs import node, random, saved, value
from tvm_ext.cli import main
from tvm_ext.core.errors import OptionError


@pytest.fixture(scope="module")
def chip_folder(tmp_path_factory):
    """Where the module cli_chip lies, a back end."""
    folder = tmp_path_factory.mktemp("offload")
    assert main(["new", "backend", "cli_chip", "--directory", str(folder)]) == 0
    return folder / "cli_chip"


@pytest.fixture
def here(chip_folder, monkeypatch, tmp_path):
    """The folder of the module is the current one; a model of two layers is there, one of them with a residual."""
    monkeypatch.chdir(chip_folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a", "r"), node("Sigmoid", "r", "y")]
    proto = make_model(nodes, [value("x", [3, 7])], [value("y", [3, 5])], {"w": random(7, 5), "b": random(5)})
    return saved(proto, tmp_path / "small.onnx")


ALWAYS = ("--import", "cli_chip", "--offload", "cli_chip", "--offload-option", "when=always")


def test_options_reach_the_compiler(cli, fake, model):
    settings = [
        "skip=fc1,fc2", "skip=Conv", "when=always", "minimum_work=1000", "rows=16", "dataflow=weight", "overlap=true",
        'energy={"mac": 0.5}', "text=a=b",
    ]  # fmt: skip
    flags = [part for setting in settings for part in ("--offload-option", setting)]
    assert cli("compile", model, "--offload", "systolic", *flags)[0] == 0
    ((_, options),) = fake.calls
    assert options["offload"] == "systolic" and options["offload_options"] == {
        "skip": ("fc1", "fc2", "Conv"), "when": "always", "minimum_work": 1000, "rows": 16, "dataflow": "weight",
        "overlap": True, "energy": {"mac": 0.5}, "text": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize("argument", ["rows", "=3", "a b=3"])
def test_an_option_that_is_none_is_a_usage_error(refused, fake, model, argument):
    assert "KEY=VALUE is needed" in refused("compile", model, "--offload", "systolic", "--offload-option", argument)


def test_a_setting_that_is_there_twice(refused, fake, model):
    said = refused("compile", model, "--offload", "npu", "--offload-option", "n=1", "--offload-option", "n=2")
    assert "--offload-option n is there twice: 1 and 2" in said


def test_an_option_without_offload_is_said_by_the_library(refused, model):
    assert "without offload" in refused("compile", model, "--offload-option", "when=always")


def test_a_report_and_programs_are_printed(cli, here, tmp_path):
    path = tmp_path / "small.so"
    code, out, err = cli("compile", here, *ALWAYS, "--offload-report", "-o", str(path))
    assert code == 0, err
    assert "offload:cli_chip" in out and "3 of 4 nodes run on 'cli_chip', in 1 regions" in out
    assert "no pattern for sigmoid" in out and "wrote" in out
    code, out, err = cli("compile", here, *ALWAYS, "--ir", "program")
    assert code == 0, err
    title, _, program = out.partition("\n")
    assert title == "==== region cli_chip_region_0 of cli_chip ===="
    assert [line.split(" ")[2].partition("(")[0] for line in program.splitlines()] == ["matmul", "add", "relu"]
    assert cli("run", str(path), "--import", "cli_chip")[0] == 0
    assert cli("verify", here, "--artifact", str(path), "--import", "cli_chip")[0] == 0


def test_json_has_the_report_and_the_programs(cli_json, here):
    code, plain = cli_json("compile", here, *ALWAYS)
    assert code == 0 and plain["report"]["offload"]["backend"] == "cli_chip" and "ir" not in plain
    code, plain = cli_json("compile", here, *ALWAYS, "--ir", "program")
    assert code == 0 and plain["stage"] == "program" and "region cli_chip_region_0" in plain["ir"]


def test_run_and_verify_compile_with_it(cli, here):
    assert cli("run", here, *ALWAYS)[0] == 0
    code, out, _ = cli("verify", here, *ALWAYS)
    assert code == 0 and "ok: every output agrees" in out


@pytest.mark.parametrize("flags", [("--offload-report",), ("--ir", "program")])
def test_what_needs_a_back_end_says_so_before_it_compiles(refused, fake, model, flags):
    assert f"{' '.join(flags)} without --offload" in refused("compile", model, *flags) and not fake.calls


def test_no_program_is_an_error_with_what_to_do(refused, here):
    said = refused("compile", here, *ALWAYS, "--ir", "program", "--offload-option", "skip=MatMul")
    assert "no part of 'small.onnx' is offloaded" in said and "--offload-report says why" in said


def test_a_back_end_without_disassembler(here, monkeypatch):
    import dataclasses

    import tvm_ext
    from tvm_ext.byoc import backend_named, register
    from tvm_ext.cli.shared.options import import_modules

    import_modules(["cli_chip"])
    mute = register(dataclasses.replace(backend_named("cli_chip"), name="mute_chip", disassemble=None))
    inspection = tvm_ext.inspect(here, offload=mute, offload_options={"when": "always"})
    with pytest.raises(OptionError, match="'mute_chip' has no disassembler"):
        inspection.stage("program")


def test_modules_that_cannot_be_imported(refused, fake, model, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_chip.py").write_text("1 / 0\n")
    said = refused("compile", model, "--import", "no_such_chip")
    assert "--import no_such_chip: No module named" in said and "not a path" in said
    said = refused("compile", model, "--import", "broken_chip")
    assert "--import broken_chip: importing it fails: ZeroDivisionError" in said


def test_tune_measures_the_cpu(refused, model):
    assert "tune measures kernels of the CPU" in refused("tune", model, "--offload", "systolic", "--dry-run")
