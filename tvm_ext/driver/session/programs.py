"""Which program runs a call, and which shapes are compiled when.

    call -> program_for(shapes) -> a program, or None: onnxruntime answers

A set of shapes is compiled once it was asked for `compile_after` times, if there is a place for it: less than
`max_programs` are there, or one of them was not asked for since the first of these times, and goes. So calls of ever
growing length, each shape once, compile nothing; more shapes in turn than there are places keep the first that came,
and do not compile in circles; and shapes that nobody asks for any more make room.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...core.errors import InputError, essence
from ...core.options import Shapes
from ...core.progress import Progress
from ...runtime.model import CompiledModel
from .compiling import Compiler
from .report import SessionReport, ShapesRow, text_of

#: What becomes of shapes that there is no program for.
ON_MISS = ("onnxruntime", "wait", "error")
#: Sets of shapes without a program that are remembered.
_REMEMBERED = 256
#: So many failures in a row are taken to be the model's: nothing is compiled in the background any more.
_GIVE_UP = 3

MISSED, WAITING, COMPILING, COMPILED = "missed", "waiting", "compiling", "compiled"
FAILED, EVICTED, NEVER = "failed", "evicted", "onnxruntime"
_PENDING, _OPEN = (WAITING, COMPILING), (MISSED, EVICTED)


@dataclass(eq=False)
class _Entry:
    """One set of shapes; `asked` are the last times it was asked for, in calls of the session."""

    shapes: Shapes
    asked: deque[int]
    state: str = MISSED
    reason: str = ""
    program: CompiledModel | None = None
    error: Exception | None = None
    seconds: float | None = None
    calls: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def row(self) -> ShapesRow:
        return ShapesRow(self.shapes, self.calls[False], self.calls[True], self.state, self.reason, self.seconds)


class Programs:
    """Programs of a model, each for one set of input shapes; threads may share it.

    Args:
        compiler: of the model.
        on_miss: see :class:`InferenceSession`, as for the following.
        max_programs: programs that are kept.
        compile_after: times that shapes are asked for before they are compiled.
    """

    def __init__(self, compiler: Compiler, on_miss: str, max_programs: int, compile_after: int) -> None:
        self._compiler = compiler
        self._on_miss, self._most, self._after = on_miss, max_programs, compile_after
        self._entries: OrderedDict[Shapes, _Entry] = OrderedDict()
        self._held: list[_Entry] = []
        self._queue: deque[_Entry] = deque()
        self._clock = self._failures = 0
        self._forgotten = (0, 0)
        self._closed = False
        self._thread: threading.Thread | None = None
        self._new_locks()
        _all_programs.add(self)

    def _new_locks(self) -> None:
        self._changed = threading.Condition()  # of everything here
        self._compiling = threading.Lock()  # one compile at a time; taken before the other

    # ---------------------------------------------------------------------------------------------- calls
    def program_for(self, shapes: Shapes, never: str = "") -> CompiledModel | None:
        """The program for a call with these shapes; None if onnxruntime is to answer it.

        The one place where it is chosen: a program that takes many shapes would be asked here, before all others.

        Args:
            shapes: of the inputs with free dimensions.
            never: why no program can take the call; "" if one can.

        Raises:
            InputError: with `on_miss="error"`, there is no program.
        """
        with self._changed:
            entry = self._asked(shapes, never)
            if entry.program is None and self._on_miss == "error":
                raise self._missing(entry)
            wanted = entry.state in _OPEN and len(entry.asked) >= self._after and self._has_place(entry)
            if self._on_miss == "onnxruntime" and wanted and self._failures < _GIVE_UP:
                self._enqueue(entry)
            wait = self._on_miss == "wait" and (wanted or entry.state in _PENDING)
            program = entry.program
            if not wait:
                entry.calls[program is not None] += 1
                return program
        with contextlib.suppress(Exception):  # it is in the report
            program = self._compile_now(entry)
        with self._changed:
            entry.calls[program is not None] += 1
        return program

    def compile_for(self, shapes: Shapes) -> CompiledModel:
        """The program for these shapes, compiled now if it is not there, however often they were asked for.

        Raises:
            UnsupportedError, OptionError, ModelError, BuildError: as :func:`tvm_ext.compile`; the same again for shapes
                that failed before.
        """
        with self._changed:
            entry = self._asked(shapes, "")
        return entry.program or self._compile_now(entry)

    def wait_compiled(self, timeout: float | None = None) -> bool:
        """Wait until no compile is pending in the background.

        Args:
            timeout: seconds; None waits without end.

        Returns:
            Whether none is.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout)

    def report(self, model: str) -> SessionReport:
        """Calls of each set of shapes.

        Args:
            model: its name.
        """
        with self._changed:
            return SessionReport(model, tuple(entry.row() for entry in self._entries.values()), self._forgotten)

    def close(self) -> None:
        """End what runs in the background, and begin nothing more; programs that are there stay."""
        with self._changed:
            self._closed = True
            for entry in self._queue:
                entry.state = MISSED
            self._queue.clear()
        self._compiler.stop()

    # -------------------------------------------------------------------------------------------- decisions
    def _asked(self, shapes: Shapes, never: str) -> _Entry:
        """The entry of these shapes, after one more question for them."""
        entry = self._entries.get(shapes)
        if entry is None:
            entry = self._entries[shapes] = _Entry(shapes, deque(maxlen=self._after))
            self._forget()
        self._entries.move_to_end(shapes)
        self._clock += 1
        entry.asked.append(self._clock)
        if never and entry.state in _OPEN:
            entry.state, entry.reason = NEVER, never
        return entry

    def _has_place(self, entry: _Entry) -> bool:
        """Whether there is room for a program more, or will be when those that are not used make it."""
        pending = sum(other.state in _PENDING for other in self._entries.values())
        unused = sum(other.asked[-1] < entry.asked[0] for other in self._held)
        return len(self._held) + pending - unused < self._most

    def _forget(self) -> None:
        """Drop the rows asked for longest ago, but those that say something that lasts."""
        if len(self._entries) > _REMEMBERED + len(self._held):
            oldest = next((one for one in self._entries.values() if one.state in (*_OPEN, NEVER)), None)
            if oldest is not None:
                del self._entries[oldest.shapes]
                sets, calls = self._forgotten
                self._forgotten = sets + 1, calls + oldest.calls[False]

    def _missing(self, entry: _Entry) -> InputError:
        there = "; ".join(text_of(one.shapes) for one in self._held) or "none"
        why = f" ({entry.reason})" if entry.reason else ""
        wrong = f"no program for the inputs {text_of(entry.shapes)}{why}; compiled: {there}"
        return InputError(wrong, fix="session.compile_for(shapes) compiles for more")

    # ------------------------------------------------------------------------------------------- compiling
    def _enqueue(self, entry: _Entry) -> None:
        if self._closed:
            return
        entry.state, entry.reason = WAITING, ""
        self._queue.append(entry)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tvm-ext-compile", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Compile what waits, one after the other, and end."""
        while True:
            while entry := self._next():
                with contextlib.suppress(BaseException):  # it is in the report
                    self._compile(entry, self._compiler.elsewhere)
            self._compiler.rest()
            with self._changed:
                if not self._queue:
                    self._thread = None
                    self._changed.notify_all()
                    return

    def _next(self) -> _Entry | None:
        with self._changed:
            return self._queue.popleft() if self._queue else None

    def _compile_now(self, entry: _Entry) -> CompiledModel:
        def here(shapes: Shapes) -> CompiledModel:
            with Progress(f"compiling for {text_of(shapes)}"):
                return self._compiler.here(shapes)

        return self._compile(entry, here)

    def _compile(self, entry: _Entry, how: Callable[[Shapes], CompiledModel]) -> CompiledModel:
        with self._compiling:
            if entry.error is not None:
                raise entry.error
            if entry.program is not None:
                return entry.program
            entry.state, start = COMPILING, time.monotonic()
            try:
                program = how(entry.shapes)
            except Exception as error:
                self._failed(entry, error)
                raise
            except BaseException:  # Ctrl-C
                entry.state = MISSED
                raise
            with self._changed:
                while len(self._held) >= self._most:
                    self._evict(min(self._held, key=lambda one: one.asked[-1]))
                entry.program, entry.state, entry.reason = program, COMPILED, ""
                entry.seconds = time.monotonic() - start
                self._failures = 0
                self._held.append(entry)
                self._entries[entry.shapes] = entry
            return program

    def _failed(self, entry: _Entry, error: Exception) -> None:
        with self._changed:
            if self._closed:
                entry.state, entry.reason = MISSED, "the session was closed meanwhile"
                return
            entry.error, entry.state, entry.reason = error, FAILED, essence(error)
            self._failures += 1
            if self._failures >= _GIVE_UP:
                entry.reason += f"; after {_GIVE_UP} failures in a row nothing more is compiled in the background"

    def _evict(self, entry: _Entry) -> None:
        self._held.remove(entry)
        entry.program = None
        entry.asked.clear()
        entry.state, entry.reason = EVICTED, f"max_programs={self._most}, and others were asked for since"

    def _forked(self) -> None:
        """In a forked process: there is no thread here, and whoever held a lock is not either."""
        self._new_locks()
        self._thread = None
        self._queue.clear()
        for entry in self._entries.values():
            if entry.state in _PENDING:
                entry.state = MISSED
        self._compiler.forked()


_all_programs: weakref.WeakSet[Programs] = weakref.WeakSet()


def _after_fork() -> None:
    for programs in list(_all_programs):
        programs._forked()


os.register_at_fork(after_in_child=_after_fork)
