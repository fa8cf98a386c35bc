"""Processes of the kit: what they print, that they hang, and how they die."""

import sys

import pytest

from tvm_ext.byoc.testing.case import UnexpectedError
from tvm_ext.byoc.testing.processes import run_script


def test_a_script_gets_its_arguments_and_imports_from_here(tmp_path, monkeypatch) -> None:
    (tmp_path / "only_here.py").write_text("x = 7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    script = "import os, sys, only_here; print(only_here.x, sys.argv[1:], os.environ['COLOUR'])"
    assert run_script(script, 1, "b", COLOUR="red") == "7 ['1', 'b'] red"


def test_a_script_that_hangs_is_ended_and_its_last_line_told() -> None:
    with pytest.raises(UnexpectedError, match="no end after 4 s, at: mutation 7"):
        run_script("import time; print('mutation 7', flush=True); time.sleep(600)", seconds=4)


def test_a_script_that_crashes_names_the_signal() -> None:
    script = "import os, signal; print('mutation 3', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    with pytest.raises(UnexpectedError, match="died of signal 11, at: mutation 3"):
        run_script(script)


def test_a_script_that_raises_tells_the_last_line() -> None:
    with pytest.raises(UnexpectedError, match="exit code 1, at:  ValueError: oops"):
        run_script("raise ValueError('oops')")
