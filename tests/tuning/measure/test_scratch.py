"""Temporary folders: removed by their process, or by the next one."""

from pathlib import Path

from tvm_ext.tuning.measure.scratch import Scratch, remove_abandoned


def test_a_folder_in_use_stays_and_an_abandoned_one_goes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = Scratch()
    abandoned = tmp_path / "tvm-ext-measure-killed"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    other = tmp_path / "something-else"
    other.mkdir()
    remove_abandoned(tmp_path)
    assert abandoned.exists()  # it may be just made
    remove_abandoned(tmp_path, age=0)
    assert not abandoned.exists()
    assert Path(used.name).exists()
    assert other.exists()
    used.cleanup()
    assert not Path(used.name).exists()
