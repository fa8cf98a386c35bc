"""Compiling in a process of its own."""

import gc
import os
import threading
import weakref
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from tests.onnx_graphs import model, node, random, saved, value
from tvm_ext.core.errors import BuildError, ModelError, UnsupportedError
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.session import compiling
from tvm_ext.driver.session.compiling import Compiler

from .models import affine, feed, session_of, uncompilable

OPTIONS = CompileOptions(cache=False, threads=1)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that compile for ever."""
    monkeypatch.setattr(compiling, "_START", "import time\nwhile True: time.sleep(1)")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[Any]:
    """Processes that were started."""
    processes: SimpleQueue[Any] = SimpleQueue()
    popen = compiling.subprocess.Popen

    def start(*args: Any, **keywords: Any) -> Any:
        processes.put(process := popen(*args, **keywords))
        return process

    monkeypatch.setattr(compiling.subprocess, "Popen", start)
    return processes


def test_errors_come_over_whole(started: SimpleQueue[Any]) -> None:
    compiler = Compiler(uncompilable("N").SerializeToString(), OPTIONS)
    with pytest.raises(UnsupportedError) as here:
        compiler.here((("x", (3,)),))
    with pytest.raises(UnsupportedError) as elsewhere:
        compiler.elsewhere((("x", (3,)),))
    assert str(elsewhere.value) == str(here.value)
    with pytest.raises(UnsupportedError):
        compiler.elsewhere((("x", (4,)),))
    compiler.rest()
    assert started.qsize() == 1 and started.get().poll() is not None


def test_options_that_no_process_could_know_are_compiled_here(endless: None) -> None:
    proto = model([node("Neg", "x", "y")], [value("x", ["N"])], [value("y", ["N"])])
    program = Compiler(proto.SerializeToString(), CompileOptions(cache=False, threads=1, fusion=lambda _: False))
    assert np.array_equal(program.elsewhere((("x", (3,)),)).run(random(3))["y"], -random(3))


def test_a_process_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_START", "import sys; sys.exit('no more memory')")
    with pytest.raises(BuildError, match="ended with code 1: no more memory"):
        Compiler(b"", OPTIONS).elsewhere(())


def test_a_file_that_was_replaced_is_another_model(tmp_path: Path) -> None:
    path = saved(affine(), tmp_path / "model.onnx")
    compiler = Compiler(path, OPTIONS)
    os.utime(path, ns=(1, 1))
    for compile_for in (compiler.here, compiler.elsewhere):
        with pytest.raises(ModelError, match="has changed"):
            compile_for(())


@pytest.mark.parametrize("how", ["close", "collected"])
def test_the_process_ends_with_the_session(endless: None, started: SimpleQueue[Any], how: str) -> None:
    session = session_of(affine(), compile_after=1)
    session.run(None, feed(3))
    process = started.get(timeout=60)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "tvm-ext-compile"]
    if how == "close":
        session.close()
        assert session.run(["z"], feed(3)) and session.report().rows[0].state == "missed"
    else:
        gone = weakref.ref(session)
        del session
        gc.collect()
        assert gone() is None
    thread.join(60)
    assert not thread.is_alive() and process.poll() is not None
