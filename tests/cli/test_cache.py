"""`tvm-ext cache`."""

import pytest

from tvm_ext.driver.cache import Cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_empty_cache_is_no_error(cli, folder):
    for action in ("ls", "clear"):
        code, out, _ = cli("cache", action)
        assert code == 0 and str(folder) in out and "0 entries" in out
    assert not folder.exists()


def test_entries_are_listed_and_removed(cli, cli_json, folder):
    Cache().put("a" * 64, lambda path: path.write_bytes(b"x" * 1000))
    code, plain = cli_json("cache", "ls")
    assert code == 0 and plain["bytes"] == 1000 and [e["key"] for e in plain["entries"]] == ["a" * 64]
    out = cli("cache", "ls")[1]
    assert "aaaaaaaaaaaa  (damaged)" in out and "1 entries" in out
    assert cli_json("cache", "clear") == (0, {"ok": True, "folder": str(folder), "removed": 1})
    assert list(folder.iterdir()) == []


def test_a_bad_limit_exits_2(cli, folder, monkeypatch):
    monkeypatch.setenv("TVM_EXT_CACHE_BYTES", "lots")
    code, _, err = cli("cache", "ls")
    assert code == 2 and "TVM_EXT_CACHE_BYTES" in err
