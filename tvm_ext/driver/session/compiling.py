"""A program for some shapes: compiled in this process, or in one of its own.

Passes are Python: in a thread beside calls they hold the interpreter's lock for milliseconds at a time, and calls that
take a tenth of one wait for it. Measured on calls of 0.06 ms during a compile of 4 s: with a thread one in a hundred
took 5 ms or more, and the longest 15; with a process one in a hundred took 0.2 ms or more, and the longest 5, while
the program was loaded.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core import errors
from ...core.errors import BuildError, ModelError, ToolError
from ...core.options import CompileOptions, Shapes, names_in
from ...runtime.model import CompiledModel, load

#: Python that the process starts with: it finds modules where this one does.
_START = """
import gc, pickle, sys
gc.disable()
sys.path[:] = pickle.load(sys.stdin.buffer)
from tvm_ext.driver.session.child import main
gc.enable()
main(sys.stdin.buffer)
"""
_LAST_WORDS = 2000


class Compiler:
    """Compiles one model for shapes.

    Args:
        model: serialized, or the path of its file.
        options: of every compile; they name the free dimensions, which numbers take the place of.
    """

    def __init__(self, model: bytes | str, options: CompileOptions) -> None:
        self._model, self._options = model, options
        self._state = _state_of(model)
        self._lock = threading.RLock()  # a collected session may end it wherever Python allocates
        self._process: _Process | None = None
        self._stopped = False

    def here(self, shapes: Shapes, any_size: bool = False) -> CompiledModel:
        """The program for these shapes, compiled in this process.

        Args:
            shapes: of the inputs with free dimensions.
            any_size: compile the program of any size instead, within bounds that hold these shapes.

        Raises:
            UnsupportedError, OptionError, ModelError, BuildError: as :func:`tvm_ext.compile`; or the file of the model
                is another one by now.
        """
        from ..compile import compile_model

        self._check_file()
        return compile_model(self._model, self._options_for(shapes, any_size))

    def elsewhere(self, shapes: Shapes, any_size: bool = False) -> CompiledModel:
        """The program for these shapes, compiled in a process of lower priority, which stays until :meth:`rest`.

        Where it cannot be, it is compiled in this one: a function or a back end of the caller's is among the options,
        or there is no Python (as in a frozen application), or no linker.

        Raises:
            UnsupportedError, OptionError, ModelError, BuildError: as :meth:`here`; or the process ended.
        """
        from ..compile import has_no_key

        self._check_file()
        if has_no_key(self._options) or not sys.executable or hasattr(sys, "frozen"):
            return self.here(shapes, any_size)
        with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:
            path = Path(folder, "model.so")
            options = replace(self._options_for(shapes, any_size), threads_wait=None)
            try:
                self._ask(pickle.dumps((options, str(path))))
                return load(path, threads_wait=self._options.threads_wait)
            except ToolError:
                return self.here(shapes, any_size)

    def rest(self) -> None:
        """End the process until there is more to compile."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def stop(self) -> None:
        """End the process that compiles, and start none any more."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def forked(self) -> None:
        """In a forked process: the process that compiles is the parent's."""
        self._lock, self._process = threading.RLock(), None

    def _options_for(self, shapes: Shapes, any_size: bool) -> CompileOptions:
        if any_size:
            return replace(self._options, dims=tuple(wide_enough(self._options, shapes).items()))
        numbers = {**dict(self._options.shapes), **dict(shapes)}
        return replace(self._options, shapes=tuple(numbers.items()), dims=(), specialize=())

    def _check_file(self) -> None:
        if _state_of(self._model) != self._state:
            wrong = f"{str(self._model)!r} has changed since the session was made"
            raise ModelError(wrong, fix="make another session")

    def _ask(self, job: bytes) -> None:
        """Have the process do a job, after it was started if need be."""
        with self._lock:
            if self._stopped:
                raise BuildError("the session is closed")
            if self._process is None:
                self._process = _Process(self._model)
            process = self._process
            if self._stopped:  # while it started
                process.kill()
        try:
            process.do(job)
        except BuildError:
            self.rest()
            raise


def wide_enough(options: CompileOptions, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The option `dims`, with wider bounds where a size is beyond a default one: up to the next power of two.

    A batch that leads alone needs no bounds: its program may be composed of those of several sizes.

    Args:
        options: name all free dimensions.
        shapes: sizes to hold.
    """
    bounds: dict[str, tuple[int, ...]] = dict(options.dims)
    if options.by_rows and all(names_in(options.shapes).values()):
        return bounds
    symbols, named = {symbol.name: symbol for symbol in options.symbols}, dict(options.shapes)
    for name, shape in shapes:
        for dim, size in zip(named.get(name, ()), shape, strict=False):
            symbol = symbols.get(str(dim))
            if symbol is None or symbol.name in dict(options.dims) or not isinstance(size, int) or size <= symbol.high:
                continue
            most = bounds.get(symbol.name, (0, 0))[1]
            bounds[symbol.name] = symbol.low, max(most, 1 << (size - 1).bit_length())
    return bounds


class _Process:
    """A process that compiles one model, in a session of its own, so that Ctrl-C does not reach it."""

    def __init__(self, model: bytes | str) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (closed by end)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words,
            start_new_session=True,
        )  # fmt: skip
        self._first = pickle.dumps(sys.path) + pickle.dumps(model)
        self.kill = self._process.kill

    def do(self, job: bytes) -> None:
        """Wait until a job is done.

        Raises:
            TvmExtError: what was raised there; a BuildError if the process ended.
        """
        jobs, answers = self._process.stdin, self._process.stdout
        assert jobs is not None and answers is not None
        try:
            jobs.write(self._first + job)
            jobs.flush()
            failed = pickle.load(answers)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise BuildError(f"the process that compiles {self._end_of()}") from None
        self._first = b""
        if failed is not None:
            name, message, fix = failed
            raise getattr(errors, name)(message, fix=fix)

    def end(self) -> None:
        """End it, whatever it does, and leave nothing of it."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            with suppress(OSError):  # unsent bytes to a dead process
                stream.close()  # type: ignore[union-attr]
        self._process.wait()

    def _end_of(self) -> str:
        code = self._process.wait()
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_WORDS))
        last = self._words.read().decode(errors="replace").split("\n")[-3:]
        return f"ended with code {code}: {' | '.join(last).strip(' |')}"


def _state_of(model: Any) -> tuple[int, int] | None:
    """What changes when a file is replaced; None of bytes."""
    if isinstance(model, str):
        with suppress(OSError):
            status = os.stat(model)
            return status.st_mtime_ns, status.st_size
    return None
