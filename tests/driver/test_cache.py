"""The on-disk cache: keys, hits, bounds, damage, several processes."""

import dataclasses
import multiprocessing
import os
import shutil
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.programs import BIAS, add_bias, export
from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver import cache as cache_module
from tvm_ext.driver.cache import Cache, CacheWarning, cache_key, default_limit
from tvm_ext.runtime.files import default_folder
from tvm_ext.runtime.model import load

KEYS = [f"{i:064x}" for i in range(10)]
X = np.ones((16, 32), np.float32)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(add_bias(), tmp_path_factory.mktemp("artifact") / "model.so")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(cache_module, "_warned", set())
    return Cache(tmp_path / "deep" / "cache")


@pytest.fixture(autouse=True)
def no_warnings() -> None:
    """A warning that a test does not expect fails it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        yield


def writer(artifact: Path):
    return lambda path: shutil.copy(artifact, path)


def names(cache: Cache) -> list[str]:
    return sorted(os.listdir(cache.folder))


# ------------------------------------------------------------------------------------------------ keys
def test_key_depends_on_all_that_compiling_does() -> None:
    machine, options, versions = Machine.detect("x86-64-v2", 2), CompileOptions(), {"tvm": "1", "tvm_ext": "2"}
    base = cache_key("a" * 64, machine, options, versions)
    others = [
        cache_key("b" * 64, machine, options, versions),
        cache_key("a" * 64, dataclasses.replace(machine, threads=1), options, versions),
        cache_key("a" * 64, dataclasses.replace(machine, features=()), options, versions),
        cache_key("a" * 64, machine, CompileOptions(fusion="none"), versions),
        cache_key("a" * 64, machine, CompileOptions(shapes={"x": (1, 2)}), versions),
        cache_key("a" * 64, machine, options, {**versions, "tvm_ext": "3"}),
    ]
    assert len({base, *others}) == 7
    assert len(base) == 64
    assert base == cache_key("a" * 64, machine, CompileOptions(cache=False), dict(reversed(versions.items())))


def test_no_key_is_a_path(cache: Cache) -> None:
    for key in ("", "../" + "a" * 61, "A" * 64):
        with pytest.raises(ValueError, match="no cache key"):
            cache.get(key)


# ------------------------------------------------------------------------------------------------ hits
def test_miss_put_hit(cache: Cache, artifact: Path) -> None:
    assert cache.get(KEYS[0]) is None
    assert cache.load(KEYS[0]) is None
    assert cache.ls() == []
    path = cache.put(KEYS[0], writer(artifact))
    assert path == cache.get(KEYS[0])
    loaded = cache.load(KEYS[0])
    assert loaded is not None
    np.testing.assert_array_equal(loaded.run(X)["y"], X + BIAS)
    assert cache.get(KEYS[1]) is None
    assert names(cache) == [f"{KEYS[0]}.so"]
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_put_of_an_exported_model(cache: Cache) -> None:
    assert cache.put(KEYS[0], add_bias().export) is not None
    assert names(cache) == [f"{KEYS[0]}.so"]


def test_ls(cache: Cache, artifact: Path) -> None:
    for i in range(3):
        path = cache.put(KEYS[i], writer(artifact))
        assert path is not None
        os.utime(path, (1000.0 + i, 1000.0 + i))
    (cache.folder / "README.so").write_text("not ours")
    (cache.folder / f"{KEYS[1]}.so").write_bytes(b"damaged")
    os.utime(cache.folder / f"{KEYS[1]}.so", (5000.0, 5000.0))
    entries = cache.ls()
    assert [(e.key, e.model, e.last_use) for e in entries] == [
        (KEYS[1], "", 5000.0), (KEYS[2], "tiny", 1002.0), (KEYS[0], "tiny", 1000.0),
    ]  # fmt: skip
    assert entries[2].size == artifact.stat().st_size
    assert cache.clear() == 3
    assert names(cache) == ["README.so"]
    assert cache.clear() == 0


def test_a_read_only_cache_still_hits(cache: Cache, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEYS[0], writer(artifact))

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache_module.os, "utime", refuse)
    assert cache.load(KEYS[0]) is not None
    assert cache.get(KEYS[1]) is None


def test_drop(cache: Cache, artifact: Path) -> None:
    cache.drop(KEYS[0])
    cache.put(KEYS[0], writer(artifact))
    cache.drop(KEYS[0])
    assert names(cache) == []


# ------------------------------------------------------------------------------------------------ bounds
def test_the_least_recently_used_goes(cache: Cache, artifact: Path) -> None:
    size = artifact.stat().st_size
    cache.limit = 3 * size + size // 2
    for i in range(3):
        path = cache.put(KEYS[i], writer(artifact))
        assert path is not None
        os.utime(path, (1000.0 + i, 1000.0 + i))
    assert cache.get(KEYS[0]) is not None  # now it is the last used
    cache.put(KEYS[3], writer(artifact))
    assert names(cache) == [f"{KEYS[i]}.so" for i in (0, 2, 3)]
    cache.limit = size
    cache.put(KEYS[4], writer(artifact))
    assert names(cache) == [f"{KEYS[4]}.so"]


def test_a_model_larger_than_the_cache_is_not_kept(cache: Cache, artifact: Path) -> None:
    cache.put(KEYS[0], writer(artifact))
    cache.limit = artifact.stat().st_size - 1
    with pytest.warns(CacheWarning, match="is not kept"):
        assert cache.put(KEYS[1], writer(artifact)) is None
    assert names(cache) == [f"{KEYS[0]}.so"]


def test_an_entry_in_use_may_be_removed(cache: Cache, artifact: Path) -> None:
    cache.put(KEYS[0], writer(artifact))
    loaded = cache.load(KEYS[0])
    with open(cache.folder / f"{KEYS[0]}.so", "rb") as file:
        cache.clear()
        assert file.read() == artifact.read_bytes()
    assert loaded is not None
    np.testing.assert_array_equal(loaded.run(X)["y"], X + BIAS)


def test_leftovers_of_killed_writers(cache: Cache, artifact: Path) -> None:
    cache.put(KEYS[0], writer(artifact))
    for name, age in [(f".{KEYS[1]}.so.abc.tmp", 7200), (f".{KEYS[2]}.so.abc.tmp", 60), ("mine.tmp", 7200)]:
        (cache.folder / name).write_bytes(b"half")
        os.utime(cache.folder / name, (time.time() - age,) * 2)
    cache.put(KEYS[3], writer(artifact))
    assert names(cache) == [f".{KEYS[2]}.so.abc.tmp", f"{KEYS[0]}.so", f"{KEYS[3]}.so", "mine.tmp"]
    cache.clear()
    assert names(cache) == ["mine.tmp"]


# ------------------------------------------------------------------------------------------------ trouble
@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty"])
def test_a_damaged_entry_is_dropped(cache: Cache, artifact: Path, damage: str) -> None:
    path = cache.put(KEYS[0], writer(artifact))
    assert path is not None
    data = artifact.read_bytes()
    middle = len(data) // 2
    path.write_bytes({
        "cut": data[:-1], "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "foreign": b"hello", "empty": b"",
    }[damage])  # fmt: skip
    with pytest.warns(CacheWarning, match="a damaged entry is dropped"):
        assert cache.load(KEYS[0]) is None
    assert names(cache) == []
    cache.put(KEYS[0], writer(artifact))
    assert cache.load(KEYS[0]) is not None


def test_a_folder_that_cannot_be_made_warns_once(tmp_path: Path, artifact: Path, cache: Cache) -> None:
    (tmp_path / "file").write_bytes(b"")
    broken = Cache(tmp_path / "file" / "cache")
    assert broken.get(KEYS[0]) is None and broken.load(KEYS[0]) is None and broken.ls() == []
    with pytest.warns(CacheWarning, match=r"file/cache cannot be used"):
        assert broken.put(KEYS[0], writer(artifact)) is None
    assert broken.put(KEYS[0], writer(artifact)) is None  # a second warning would be an error here


def test_a_writer_that_fails_leaves_nothing(cache: Cache) -> None:
    def half(path: Path) -> None:
        path.write_bytes(b"half")
        raise ToolError("no linker")

    with pytest.warns(CacheWarning, match="no linker"):
        assert cache.put(KEYS[0], half) is None
    assert names(cache) == []

    def wrong(path: Path) -> None:
        path.write_bytes(b"half")
        raise ZeroDivisionError("a bug is no trouble of the cache")

    with pytest.raises(ZeroDivisionError):
        cache.put(KEYS[0], wrong)
    assert names(cache) == []


def _put_and_load(folder: str, artifact: str, seed: int) -> int:
    """A process that puts and loads in a small cache at random; how many loads were hits."""
    rng, hits = np.random.default_rng(seed), 0
    cache = Cache(folder, limit=3 * os.stat(artifact).st_size)
    for _ in range(30):
        key = KEYS[rng.integers(len(KEYS))]
        loaded = cache.load(key)
        if loaded is None:
            path = cache.put(key, writer(Path(artifact)))
            assert path is not None
        else:
            hits += 1
            assert np.array_equal(loaded.run(X)["y"], X + BIAS)
    return hits


def test_several_processes(cache: Cache, artifact: Path) -> None:
    arguments = [(str(cache.folder), str(artifact), seed) for seed in range(3)]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        hits = pool.starmap(_put_and_load, arguments)
    assert sum(hits) > 0
    assert len(cache.ls()) <= 4
    assert all(entry.model == "tiny" and load(entry.path) for entry in cache.ls())
    assert not [name for name in names(cache) if name.endswith(".tmp")]


# ------------------------------------------------------------------------------------------------ settings
def test_where_and_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_folder({"TVM_EXT_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}) == Path("/a/b")
    assert default_folder({"TVM_EXT_CACHE": "~/b"}) == Path("/home/someone/b")
    assert default_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/tvm-ext")
    for environ in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert default_folder(environ) == Path("/home/someone/.cache/tvm-ext")
    assert default_limit({}) == 2 << 30
    assert default_limit({"TVM_EXT_CACHE_BYTES": "12345"}) == 12345
    for wrong in ("", "-1", "2G", "1.5"):
        with pytest.raises(OptionError, match="no number of bytes"):
            default_limit({"TVM_EXT_CACHE_BYTES": wrong})
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    assert Cache().folder == tmp_path
