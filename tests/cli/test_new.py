"""`tvm-ext new`: what it writes works at once, and what it refuses."""

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 80


@pytest.fixture
def folder(cli, tmp_path) -> Path:
    """A new back end, new_chip."""
    code, out, err = cli("new", "backend", "new_chip", "--directory", str(tmp_path / "deep"))
    assert (code, err) == (0, "")
    target = tmp_path / "deep" / "new_chip"
    assert out.splitlines()[-1] == f"next: cd {target} && pytest"
    return target


def run(folder: Path, *command: str) -> str:
    """What a command prints, run in a folder by this Python, with `tvm-ext` and `pytest` on PATH."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_back_end_has_its_name_and_is_short(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "new_chip.py", "test_new_chip.py"]
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert all("new_chip" in text and "my_chip" not in text for text in texts.values())
    assert texts["new_chip.py"].count("\n") < MOST_LINES and len(texts["README.md"].splitlines()) <= 25


def test_it_is_clean(folder):
    """By the rules of this library, in the reader's own folder."""
    options = ("--isolated", "--no-cache", "--line-length", "120", ".")
    run(folder, sys.executable, "-m", "ruff", "check", "--select", "E,F,I,B,UP,SIM,RUF,PERF,C4", *options)
    run(folder, sys.executable, "-m", "ruff", "format", "--check", *options)


def test_the_entry_points_of_its_readme_are_those_of_the_library(folder):
    text = (folder / "README.md").read_text()
    lines = [line[4:] for line in text[text.index("    [options]") :].splitlines()]
    config, ours = configparser.ConfigParser(), configparser.ConfigParser()
    config.read_string("\n".join(lines))
    ours.read(ROOT / "setup.cfg")
    points = dict(config["options.entry_points"])
    assert points.keys() < dict(ours["options.entry_points"]).keys()
    assert [point.split() for point in points.values()] == [
        ["new_chip", "=", "new_chip:BACKEND"], ["new_chip", "=", "new_chip:driver"],
    ]  # fmt: skip


@pytest.mark.long
def test_the_commands_of_its_readme_work(folder):
    """Its own tests are run by `tests/test_documents.py`."""
    commands = [line.partition("#")[0].strip() for line in (folder / "README.md").read_text().splitlines()]
    tests, *verbs = [line for line in commands if line.startswith(("pytest", "tvm-ext"))]
    assert tests == "pytest" and len(verbs) == 2
    outputs = [run(folder, "bash", "-c", command) for command in verbs]
    assert "5 of 5 nodes run on 'new_chip'" in outputs[0] and (folder / "mlp.so").is_file()
    assert "output" in outputs[1]


def test_json_names_the_files(cli_json, tmp_path):
    code, plain = cli_json("new", "backend", "json_chip", "--directory", str(tmp_path))
    assert code == 0 and plain["name"] == "json_chip"
    assert [Path(name).name for name in plain["files"]] == ["json_chip.py", "test_json_chip.py", "README.md"]
    assert all(Path(name).is_file() for name in plain["files"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "lower case letters") for name in ("my-chip", "MyChip", "1chip", "lambda", "", "chïp", "a/b")),
        ("systolic", "a back end of that name"), ("json", "a module of that name"), ("numpy", "a module of that name"),
    ],
)  # fmt: skip
def test_names_that_it_cannot_have(refused, tmp_path, name, reason):
    said = refused("new", "backend", name, "--directory", str(tmp_path))
    assert reason in said and "fix: give another name" in said and list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(refused, folder):
    (folder / "new_chip.py").write_text("mine")
    said = refused("new", "backend", "new_chip", "--directory", str(folder.parent))
    assert f"{folder} exists already" in said and "another --directory" in said
    assert (folder / "new_chip.py").read_text() == "mine"


def test_a_folder_that_cannot_be_made(refused, tmp_path):
    (tmp_path / "file").write_text("")
    said = refused("new", "backend", "new_chip", "--directory", str(tmp_path / "file"), code=1)
    assert "cannot be written" in said and "usage:" in refused("new", "frontend", "x")
