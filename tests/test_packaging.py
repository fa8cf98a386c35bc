"""The package as users get it: source archive, wheel and editable install; one import root, linked folders inside."""

import configparser
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
LOGS = "tvm_ext/tuning_logs/"
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(kind: str, tree: Path, into: Path) -> Path:
    """Build "sdist", "wheel" or "editable" of a source tree by the hooks pip calls; no network."""
    into.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(into)], cwd=tree, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, as a clone has it: no products of earlier builds."""
    copy = tmp_path_factory.mktemp("package") / "tvm-ext"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    (copy / "tuning_logs" / "some.cpu-t2.json").write_text("# a log\n")
    return copy


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    return build("sdist", tree, tree.parent / "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """A wheel built from the source archive, as pip does where no wheel fits: both must be whole."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent / "unpacked", filter="data")
    (unpacked,) = (sdist.parent / "unpacked").iterdir()
    return build("wheel", unpacked, sdist.parent.parent / "wheel")


def modules(folder: Path) -> set[str]:
    """Paths of all files of the library in a tree, links followed; scripts beside the tuning logs are none of it."""
    names = set()
    for parent, _, files in os.walk(folder / "tvm_ext", followlinks=True):
        if "__pycache__" not in parent:
            names |= {(Path(parent) / name).relative_to(folder).as_posix() for name in files}
    return {name for name in names if not (name.startswith(LOGS) and name.endswith(".py"))}


# Under -S and -E, so that an editable install of this very environment is not seen, nor what PYTHONPATH names.
LOCATE = """
import site, sys
installed, *others = sys.argv[1:]
site.addsitedir(installed)
sys.path += others
import tvm_ext, tvm_ext.schedules
from tvm_ext.driver.records import SHIPPED
print(tvm_ext.__file__, tvm_ext.schedules.__file__, *sorted(SHIPPED.glob("some.*.json")), sep="\\n")
"""


def imported_from(installed: Path) -> list[Path]:
    """Files of tvm_ext, tvm_ext.schedules and a tuning log when `installed` is where packages are installed."""
    command = [sys.executable, "-E", "-S", "-c", LOCATE, str(installed), *site.getsitepackages()]
    done = subprocess.run(command, cwd=installed, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.split()]


def test_links_lead_to_the_top_level_folders() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / "tvm_ext").iterdir() if path.is_symlink()}
    assert "schedules" in links
    assert links == {name: f"../{name}" for name in links}
    packages = {name for name in links if (ROOT / name / "__init__.py").is_file()}
    assert links.keys() - packages == {"tuning_logs"}  # data, and scripts that are run by their path


def test_sdist_holds_the_linked_folders_as_files(tree: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert all(member.isfile() or member.isdir() for member in members)
    names = {member.name.split("/", 1)[1] for member in members if "/" in member.name}
    assert modules(tree) <= names
    assert {"setup.cfg", "pyproject.toml", "LICENSE", "README.md", "tests/test_packaging.py"} <= names
    assert {"tuning_logs/_tune.py", "tuning_logs/some.cpu-t2.json", LOGS + "some.cpu-t2.json"} <= names


def test_wheel_holds_the_library_and_nothing_else(tree: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == modules(tree)
    assert "tvm_ext/schedules/__init__.py" in names
    assert {"tvm_ext/py.typed", LOGS + "some.cpu-t2.json", LOGS + "README.md"} <= names


def test_wheel_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: <3.14,>=3.10\n" in metadata
    assert "tvm-ext = tvm_ext.cli:main" in scripts
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence


def test_wheel_imports(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    package, schedules, log = imported_from(tmp_path)
    assert package == tmp_path / "tvm_ext" / "__init__.py"
    assert schedules == tmp_path / "tvm_ext" / "schedules" / "__init__.py"
    assert log == tmp_path / LOGS / "some.cpu-t2.json"


def test_editable_install_imports(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build("editable", tree, tree.parent / "editable")) as archive:
        archive.extractall(tmp_path)
    package, schedules, log = imported_from(tmp_path)
    assert package == tree / "tvm_ext" / "__init__.py"
    assert schedules == tree / "tvm_ext" / "schedules" / "__init__.py"
    assert log == tree / LOGS / "some.cpu-t2.json"


def test_base_dependencies_are_pinned_and_few() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    base = [line for line in config["options"]["install_requires"].split("\n") if line]
    assert {"apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1"} <= set(base)
    names = {re.split(r"[=<>]", line, maxsplit=1)[0] for line in base}
    assert names == {"apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onnxruntime"}


def test_tuning_takes_the_small_xgboost() -> None:
    """`xgboost` itself brings 470 MB of GPU libraries; `xgboost-cpu` is the same module."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = "\n".join(config["options.extras_require"].values()).split("\n")
    assert "xgboost-cpu" in wanted
    assert not [line for line in wanted if re.fullmatch(r"xgboost\b(?!-cpu).*", line)]
