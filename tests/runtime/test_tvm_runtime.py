"""Finding TVM's runtime library without importing `tvm`."""

from pathlib import Path

import pytest

from tvm_ext.runtime import tvm_runtime


def test_the_library_is_the_one_tvm_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    monkeypatch.delenv("TVM_LIBRARY_PATH", raising=False)
    assert tvm_runtime._library_path() == Path(tvm.libinfo.find_libtvm_runtime())


def test_a_library_path_of_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = tvm_runtime._library_path()
    monkeypatch.setenv("TVM_LIBRARY_PATH", str(tmp_path))
    assert tvm_runtime._library_path() == result  # nothing there
    (tmp_path / "libtvm_runtime.so").touch()
    assert tvm_runtime._library_path() == tmp_path / "libtvm_runtime.so"


def test_another_layout_is_left_to_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(tvm_runtime, "find_spec", lambda name: None)
    assert tvm_runtime._library_path() is None


def test_symbols_are_those_of_the_runtime() -> None:
    symbols = tvm_runtime.runtime_symbols()
    assert symbols.TVMBackendParallelLaunch and symbols._ZN3tvm7runtime9threading15ResetThreadPoolEv


def test_version() -> None:
    import tvm

    assert tvm_runtime.tvm_version() == tvm.__version__
