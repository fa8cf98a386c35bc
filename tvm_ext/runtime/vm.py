"""One caller's share of a loaded model: a Relax VM of its own with its functions, and a bounded pool of callers.

A Relax VM keeps the registers of its call in itself, so two threads must never be in one. VMs over one executable
share its code and weights; another costs well under a millisecond.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .drivers import launches_at_once, settle
from .function import Function, Weights
from .memory.arrays import Arrays, Places, mapped_empty
from .memory.resident import ReadyCall, Resident
from .pool.forks import renew_after_fork
from .sizes.batches import run_composed, split_batch
from .sizes.sized_call import SizedCalls
from .spec import Metadata
from .tvm_runtime import virtual_machine

Observer = Callable[[str, bool], None]
"""Called with the name of a kernel (or of a builtin of the VM), and whether it is about to run or has run."""

Hook = Callable[[str, bool, Sequence[Any]], None]
"""What an :data:`Observer` is called with, and the arguments as the VM has them."""


class Caller:
    """A VM and the buffers of the calls made through it. One call at a time.

    Args:
        module: TVM module of the executable.
        metadata: what its functions take and make.
        weights: of all of them.
    """

    def __init__(self, module: Any, metadata: Metadata, weights: Weights) -> None:
        self._machine = machine = virtual_machine(module)
        self._inputs, self._outputs = metadata.inputs, metadata.outputs
        memory = mapped_empty(max(program.arena_bytes for program in metadata.programs))
        functions = [
            Function(machine[program.function], program, *metadata.interface(program), weights, memory)
            for program in metadata.programs
        ]
        pairs = zip(metadata.programs, functions, strict=True)
        self._functions = {program.batch: function for program, function in pairs}
        self._sized = SizedCalls(metadata, functions) if metadata.symbols else None
        self._costs = tuple((program.batch, program.cost or float(program.batch)) for program in metadata.programs)

    def call(self, arrays: Arrays, rows: int = 0, into: Places | None = None) -> list[np.ndarray]:
        """Run the model. Arrays fit the inputs; what comes back shares memory with nothing else, but for `into`.

        Args:
            arrays: one an input.
            rows: size of the batch; 0 if no dimension is symbolic.
            into: one an output: aligned memory to write it to, or None. An output that no kernel writes is elsewhere.
        """
        if isinstance(into, Resident):
            ready = into.ready.setdefault(self, {})
            if into.key not in ready:
                ready[into.key] = self._ready(arrays, rows, into)
            if (call := ready[into.key]) is not None:
                return call(arrays)
        if self._sized is not None:
            return self._sized(arrays, into)
        if (function := self._functions.get(rows)) is not None:
            return function.call(arrays, into)
        sizes = split_batch(rows, self._costs)
        return run_composed(self._functions, sizes, arrays, self._inputs, self._outputs, rows, into)

    def _ready(self, arrays: Arrays, rows: int, into: Resident) -> ReadyCall | None:
        """How calls of a session are made with what is fed, if one function takes all as it lies."""
        function = self._functions.get(rows) if self._sized is None else self._sized.exact(arrays)
        return None if function is None else function.ready(arrays, into, into.fed)

    def observed(self, arrays: Arrays, rows: int, hook: Hook, into: Places | None = None) -> list[np.ndarray]:
        """:meth:`call`, with a look at every kernel; regions run where they are launched, and waits are no kernels."""
        waiting = False

        def look(_function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> None:
            nonlocal waiting
            if waiting or (before and is_wait(arguments)):
                waiting = before
            else:
                hook(name, before, arguments)

        with launches_at_once() as is_wait:
            self._machine.set_instrument(look)
            try:
                return self.call(arrays, rows, into)
            finally:
                self._machine.set_instrument(None)


class CallerPool:
    """A bounded number of callers, last used first.

    Args:
        make: makes a caller.
        limit: callers at most; further calls wait.
    """

    def __init__(self, make: Callable[[], Caller], limit: int) -> None:
        self._make, self._limit = make, limit
        self.reset()
        renew_after_fork(self, CallerPool.reset)

    def reset(self) -> None:
        """Forget all callers and locks: after a fork, threads that held them are gone."""
        self._idle: list[Caller] = []
        self._made = 0
        self._waiting = 0
        self._returned = threading.Condition(threading.Lock())

    def call(
        self, arrays: Arrays, rows: int = 0, hook: Hook | None = None, into: Places | None = None
    ) -> list[np.ndarray]:
        """:meth:`Caller.call` (or :meth:`Caller.observed`) through a free caller."""
        try:
            caller = self._idle.pop()
        except IndexError:
            caller = self._wait_or_make()
        try:
            outputs = caller.observed(arrays, rows, hook, into) if hook else caller.call(arrays, rows, into)
        except BaseException:
            settle()
            self._give_up()
            raise
        self._idle.append(caller)
        if self._waiting:  # read after the append: who waits counts itself first, then looks once more
            with self._returned:
                self._returned.notify()
        return outputs

    def _wait_or_make(self) -> Caller:
        with self._returned:
            self._waiting += 1
            try:
                while True:
                    if self._idle:
                        return self._idle.pop()
                    if self._made < self._limit:
                        self._made += 1
                        break
                    self._returned.wait()
            finally:
                self._waiting -= 1
        try:
            return self._make()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """A call failed: its VM may hold half of it, so another is made when one is needed."""
        with self._returned:
            self._made -= 1
            self._returned.notify()
