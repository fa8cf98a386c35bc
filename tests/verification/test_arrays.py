"""Named arrays on disk."""

import os
import stat

import numpy as np
import pytest

from tvm_ext.core.errors import InputError, ToolError
from tvm_ext.verification.arrays import load_npy, load_npz, save_npy, save_npz, write_whole


def test_any_name_survives(tmp_path):
    arrays = {"file": np.arange(3), "/a/b:0": np.ones((2, 0)), "s": np.float32(2).reshape(()), "": np.zeros(1)}
    save_npz(tmp_path / "a.npz", arrays)
    loaded = load_npz(tmp_path / "a.npz")
    assert list(loaded) == list(arrays)
    assert all(np.array_equal(loaded[n], arrays[n]) and loaded[n].dtype == arrays[n].dtype for n in arrays)


def test_a_single_array(tmp_path):
    save_npy(tmp_path / "a.npy", np.arange(6).reshape(2, 3).T)
    assert np.array_equal(load_npy(tmp_path / "a.npy"), np.arange(6).reshape(2, 3).T)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    write_whole(path, lambda stream: stream.write(b"old"))

    def fail(stream):
        stream.write(b"half")
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_whole(path, fail)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.bin"]


def test_files_get_ordinary_permissions(tmp_path):
    mask = os.umask(0o022)
    try:
        save_npy(tmp_path / "a.npy", np.zeros(1))
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.npy").stat().st_mode) == 0o644


def test_bad_files_are_one_clear_error(tmp_path):
    with pytest.raises(ToolError, match="cannot be written"):
        save_npy(tmp_path / "missing" / "a.npy", np.zeros(1))
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    np.save(tmp_path / "pickled.npy", np.array([{}], object))
    for name in ("bad.npy", "pickled.npy", "none.npy"):
        with pytest.raises(InputError, match=name):
            load_npy(tmp_path / name)
        with pytest.raises(InputError, match=name):
            load_npz(tmp_path / name)
    save_npz(tmp_path / "a.npz", {"x": np.zeros(1)})
    with pytest.raises(InputError, match="one array"):
        load_npy(tmp_path / "a.npz")
