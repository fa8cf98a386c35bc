"""`tvm-ext cache`."""

from tvm_ext.driver.cache import Cache


def test_an_empty_cache_is_no_error(cli, cache_folder):
    for action in ("ls", "clear"):
        code, out, _ = cli("cache", action)
        assert code == 0 and str(cache_folder) in out and "0 entries" in out
    assert not cache_folder.exists()


def test_entries_are_listed_and_removed(cli, cli_json, cache_folder):
    Cache().put("a" * 64, lambda path: path.write_bytes(b"x" * 1000))
    code, plain = cli_json("cache", "ls")
    assert code == 0 and plain["bytes"] == 1000 and [e["key"] for e in plain["entries"]] == ["a" * 64]
    out = cli("cache", "ls")[1]
    assert "aaaaaaaaaaaa  (damaged)" in out and "1 entries" in out
    assert cli_json("cache", "clear") == (0, {"ok": True, "folder": str(cache_folder), "removed": 1})
    assert list(cache_folder.iterdir()) == []


def test_a_bad_limit_exits_2(refused, cache_folder, monkeypatch):
    monkeypatch.setenv("TVM_EXT_CACHE_BYTES", "lots")
    assert "TVM_EXT_CACHE_BYTES" in refused("cache", "ls")
