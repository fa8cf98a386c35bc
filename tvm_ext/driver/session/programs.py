"""Which program runs a call, and which shapes are compiled when.

    call -> program_for(shapes) -> a program, or None: onnxruntime answers

The program of any size comes first: it is compiled at the first call, and runs all calls within its bounds but those of
shapes that have a program of their own (`compile_for`). The rest is for shapes beyond its bounds, and for models that
have no such program.

A set of shapes is compiled once it was asked for `compile_after` times, if there is a place for it: less than
`max_programs` are there, or one of them was not asked for since the first of these times, and goes. So calls of ever
growing length, each shape once, compile nothing; more shapes in turn than there are places keep the first that came,
and do not compile in circles; and shapes that nobody asks for any more make room.
"""

import contextlib
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...core.errors import InputError, essence
from ...core.options import Shapes
from ...core.progress import Progress
from ...runtime.model import CompiledModel
from ...runtime.pool.forks import renew_after_fork
from .bounds import Bounds
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
    """One set of shapes, or all sizes within bounds.

    `asked` are the last times it was asked for, in calls of the session; `bounds` stay when the program goes; `shapes`
    of the program of any size are those of the first call; `beyond` says why that program does not take the shapes;
    `fixed` are its calls by the sizes that are fixed in the program which ran.
    """

    shapes: Shapes
    asked: deque[int]
    any_size: bool = False
    bounds: Bounds | None = None
    beyond: str = ""
    state: str = MISSED
    reason: str = ""
    program: CompiledModel | None = None
    error: Exception | None = None
    seconds: float | None = None
    calls: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    fixed: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        return self.row().text

    def row(self) -> ShapesRow:
        shapes, symbols = () if self.any_size else self.shapes, self.bounds.symbols if self.bounds else ()
        reason = self.reason or self.beyond
        calls, fixed = (self.calls[False], self.calls[True]), tuple(sorted(self.fixed.items()))
        return ShapesRow(shapes, *calls, self.state, reason, self.seconds, symbols, fixed)

    def count(self, compiled: bool, shapes: Shapes) -> None:
        """One more call, by a program of these shapes or by onnxruntime."""
        self.calls[compiled] += 1
        if compiled and self.bounds and (fixed := self.bounds.fixed(shapes)):
            self.fixed[fixed] += 1

    def why_not(self, shapes: Shapes) -> str:
        """Why the program of any size does not take shapes; "" if it does, or that is not known yet."""
        return self.bounds.why_not(shapes) if self.bounds else ""


class Programs:
    """Programs of a model: one of any size within bounds, and for other input shapes one each; threads may share it.

    Args:
        compiler: of the model.
        on_miss: see :class:`InferenceSession`, as for the following.
        max_programs: programs that are kept.
        compile_after: times that shapes are asked for before they are compiled.
        any_size: whether there is a program of any size.
    """

    def __init__(
        self, compiler: Compiler, on_miss: str, max_programs: int, compile_after: int, any_size: bool = True
    ) -> None:
        self._compiler = compiler
        self._on_miss, self._most, self._after = on_miss, max_programs, compile_after
        self._entries: OrderedDict[Shapes, _Entry] = OrderedDict()
        self._any_size = _Entry((), deque(maxlen=compile_after), any_size=True) if any_size else None
        self._held: list[_Entry] = []
        self._queue: deque[_Entry] = deque()
        self._clock = self._failures = 0
        self._forgotten = (0, 0)
        self._closed = False
        self._thread: threading.Thread | None = None
        self._new_locks()
        renew_after_fork(self, Programs._forked)

    def _new_locks(self) -> None:
        self._changed = threading.Condition()  # of everything here
        self._compiling = threading.Lock()  # one compile at a time; taken before the other

    # ---------------------------------------------------------------------------------------------- calls
    def program_for(self, shapes: Shapes, never: str = "") -> CompiledModel | None:
        """The program for a call with these shapes; None if onnxruntime is to answer it.

        The one place where it is chosen.

        Args:
            shapes: of the inputs with free dimensions.
            never: why no program can take the call; "" if one can.

        Raises:
            InputError: with `on_miss="error"`, there is no program.
        """
        with self._changed:
            entry = self._entry_for(shapes, never)
            unknown = entry.any_size and entry.bounds is None
        program = self._program_of(entry, shapes)
        beyond = entry.why_not(shapes) if unknown else ""
        if beyond or (entry.any_size and program is None and self._on_miss == "wait"):
            with self._changed:  # it was compiled meanwhile, and is not for these shapes
                entry = self._asked(shapes, never, beyond)
            program = self._program_of(entry, shapes)
        with self._changed:
            entry.count(program is not None, shapes)
        return program

    def _program_of(self, entry: _Entry, shapes: Shapes) -> CompiledModel | None:
        """The program of an entry, after its compile was begun, or waited for, if it is time for that."""
        with self._changed:
            if entry.program is None and self._on_miss == "error":
                there, reason = "; ".join(other.text for other in self._held) or "none", entry.reason or entry.beyond
                why = f" ({reason})" if reason else ""
                wider = ", and dims= states wider bounds" if entry.beyond else ""
                wrong = f"no program for the inputs {text_of(shapes)}{why}; compiled: {there}"
                raise InputError(wrong, fix=f"session.compile_for(shapes) compiles for more{wider}")
            wanted = self._is_wanted(entry)
            if self._on_miss == "onnxruntime" and wanted:
                self._enqueue(entry)
            wait = self._on_miss == "wait" and (wanted or entry.state in _PENDING)
            if not wait:
                return entry.program
        with contextlib.suppress(Exception):  # it is in the report
            return self._compile_now(entry)
        return None

    def compile_any_size(self) -> None:
        """Compile the program of any size now; where there can be none, the report says why."""
        if self._any_size is not None:
            with contextlib.suppress(Exception):
                self._compile_now(self._any_size)

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
        """Calls of the program of any size, and of each set of shapes.

        Args:
            model: its name.
        """
        with self._changed:
            return SessionReport(model, tuple(entry.row() for entry in self._all()), self._forgotten)

    def close(self) -> None:
        """End what runs in the background, and begin nothing more; programs that are there stay."""
        with self._changed:
            self._closed = True
            for entry in self._queue:
                entry.state = MISSED
            self._queue.clear()
        self._compiler.stop()

    # -------------------------------------------------------------------------------------------- decisions
    def _all(self) -> list[_Entry]:
        return [*([self._any_size] if self._any_size else []), *self._entries.values()]

    def _entry_for(self, shapes: Shapes, never: str) -> _Entry:
        """The entry whose program runs these shapes, or will, after one more question for it."""
        own, free = self._entries.get(shapes), self._any_size
        if free is None or never or free.state == FAILED or (own is not None and own.program is not None):
            return self._asked(shapes, never)
        if beyond := free.why_not(shapes):
            return self._asked(shapes, "", beyond)
        self._clock += 1
        free.asked.append(self._clock)
        free.shapes = free.shapes or shapes
        return free

    def _asked(self, shapes: Shapes, never: str, beyond: str = "") -> _Entry:
        """The entry of these shapes alone, after one more question for them."""
        entry = self._entries.get(shapes)
        if entry is None:
            self._forget()
            entry = self._entries[shapes] = _Entry(shapes, deque(maxlen=self._after))
        self._entries.move_to_end(shapes)
        self._clock += 1
        entry.asked.append(self._clock)
        entry.beyond = beyond or entry.beyond
        if never and entry.state in _OPEN:
            entry.state, entry.reason = NEVER, never
        return entry

    def _is_wanted(self, entry: _Entry) -> bool:
        """Whether it is time to compile: asked for often enough, and there is room for a program more, or will be when
        those that are not used make it. The program of any size takes a free place at once."""
        if entry.state not in _OPEN or (self._failures >= _GIVE_UP and self._on_miss == "onnxruntime"):
            return False
        taken = len(self._held) + sum(other.state in _PENDING for other in self._all())
        if entry.any_size and entry.state == MISSED and taken < self._most:
            return True
        unused = sum(not other.asked or other.asked[-1] < entry.asked[0] for other in self._held)
        return len(entry.asked) >= self._after and taken - unused < self._most

    def _forget(self) -> None:
        """Drop the rows asked for longest ago, but those that say something that lasts."""
        if len(self._entries) >= _REMEMBERED + len(self._held):
            oldest = next((other for other in self._entries.values() if other.state in (*_OPEN, NEVER, FAILED)), None)
            if oldest is not None:
                del self._entries[oldest.shapes]
                sets, calls = self._forgotten
                self._forgotten = sets + 1, calls + oldest.calls[False]

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
        def here(shapes: Shapes, any_size: bool) -> CompiledModel:
            with Progress(f"compiling for {'any size' if any_size else text_of(shapes)}"):
                return self._compiler.here(shapes, any_size)

        return self._compile(entry, here)

    def _compile(self, entry: _Entry, how: Callable[[Shapes, bool], CompiledModel]) -> CompiledModel:
        with self._compiling:
            if entry.error is not None:
                raise entry.error
            if entry.program is not None:
                return entry.program
            entry.state, start = COMPILING, time.monotonic()
            try:
                program = how(entry.shapes, entry.any_size)
            except Exception as error:
                self._failed(entry, error)
                raise
            except BaseException:  # Ctrl-C
                entry.state = MISSED
                raise
            with self._changed:
                while len(self._held) >= self._most:
                    self._evict(min(self._held, key=lambda other: other.asked[-1] if other.asked else 0))
                entry.program, entry.state, entry.reason = program, COMPILED, ""
                entry.seconds = time.monotonic() - start
                self._failures = 0
                self._held.append(entry)
                if entry.any_size:
                    entry.bounds = Bounds.of(program)
                else:
                    self._entries[entry.shapes] = entry
            return program

    def _failed(self, entry: _Entry, error: Exception) -> None:
        with self._changed:
            if self._closed:
                entry.state, entry.reason = MISSED, "the session was closed meanwhile"
                return
            # its frames hold the compile, model and all
            entry.error, entry.state, entry.reason = error.with_traceback(None), FAILED, essence(error)
            if entry.any_size:
                return
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
        for entry in self._all():
            if entry.state in _PENDING:
                entry.state = MISSED
        self._compiler.forked()
