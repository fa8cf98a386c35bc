"""What a worker does with a task: computes the reference, builds candidates, checks and times them."""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.errors import essence
from ...core.layout import Layout
from ...core.machine import Machine
from ...driver.build import compile_kernels
from ...runtime.memory.arrays import aligned_empty
from ...verification.metrics import value_range
from .arguments import ColdCopies, Packed, poison, random_inputs
from .check import Rounding, compare
from .dtypes import bits_of, is_float, lent
from .programs import Program, program_of
from .timing import Repeats, timed

#: Name of the kernel in its module.
ENTRY = "main"
#: Tasks whose inputs and references a worker keeps.
_TASKS = 4
#: Bytes of cold copies: weights of a model are not many times more, and a host takes seconds to give a worker more.
_MOST_COLD = 256 << 20


class Failed(Exception):
    """A candidate failed: at which step (one of the errors of a record), and why."""

    def __init__(self, error: str, detail: str, check: float | None = None) -> None:
        super().__init__(detail)
        self.error, self.detail, self.check = error, detail, check


@dataclass
class _Task:
    program: Program
    rounding: Rounding

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the arguments that the program writes."""
        return tuple(argument.dtype for argument in self.program.arguments if argument.written)


@dataclass(frozen=True)
class Built:
    """A candidate that is compiled: its task, what runs it, how its arguments lie in memory, and whether it sums the
    products that the unscheduled function states."""

    task: str
    function: Any
    layouts: tuple[Layout, ...]
    exact: bool


class Workbench:
    """Tasks and built candidates of one worker.

    Args:
        machine: kernels are compiled for it, and may use its threads.
        cold: memory for cold copies of constant arguments, in units of L3; `_MOST_COLD` at most.
        repeats: how often a kernel is timed.
    """

    def __init__(self, machine: Machine, cold: float, repeats: Repeats) -> None:
        self._machine, self._repeats = machine, repeats
        self._copies = ColdCopies(min(int(cold * machine.l3), _MOST_COLD))
        self._packed = Packed()
        self._tasks: dict[str, _Task] = {}
        self._inputs = functools.lru_cache(maxsize=_TASKS)(
            lambda key: random_inputs(self._tasks[key].program.arguments)
        )
        self._built: dict[int, Built] = {}

    def load(self, key: str, description: Mapping[str, Any]) -> None:
        """Learn a task; once."""
        if key not in self._tasks:
            program = program_of(description, self._machine)
            self._tasks[key] = _Task(program, Rounding.of(program.unscheduled))

    def save_reference(self, key: str, path: str) -> None:
        """Run the unscheduled function and write its results; the file appears whole or not at all."""
        task = self._tasks[key]
        results = task.program.reference(self._inputs(key))
        for result in results:
            if is_float(result.dtype) and result.size and not np.isfinite(result).any():
                raise ValueError("the unscheduled function gives no finite number for random inputs")
        np.savez(f"{path}.part.npz", *map(bits_of, results))
        os.replace(f"{path}.part.npz", path)

    def forget(self) -> None:
        """Drop candidates that were built and not run."""
        self._built.clear()

    def build(self, trial: int, key: str, candidate: Mapping[str, Any]) -> None:
        """Schedule and compile a candidate and pack its arguments.

        Raises:
            Failed: "schedule" or "build".
        """
        program = self._tasks[key].program
        try:
            kernel = program.kernel(candidate)
        except Exception as error:
            raise Failed("schedule", essence(error)) from error
        try:
            function = self._compiled(trial, kernel.function)
            self._given(key, kernel.layouts)
        except Exception as error:
            raise Failed("build", essence(error)) from error
        self._built[trial] = Built(key, function, kernel.layouts, kernel.exact)

    def run(self, trial: int, path: str, best: float, again: bool = False) -> dict[str, Any]:
        """Time a candidate and compare its outputs with the reference in a file.

        Args:
            again: keep it built, to be run once more.

        Raises:
            Failed: "run" or "wrong".
        """
        built = self._built[trial] if again else self._built.pop(trial)
        task = self._tasks[built.task]
        outputs = self._outputs(task.program, built.layouts)
        try:
            costs, discarded = self._timed(built, outputs, best)
        except Failed:
            raise
        except Exception as error:
            raise Failed("run", essence(error)) from error
        return {"costs": costs, "discarded": discarded, "check": self._check(built, outputs, path)}

    def _compiled(self, trial: int, kernel: Any) -> Any:
        """What :meth:`_timed` needs of a kernel: its function, machine code by now."""
        return compile_kernels({ENTRY: kernel}, self._machine)[ENTRY]

    def _timed(self, built: Built, outputs: Mapping[int, np.ndarray], best: float) -> tuple[tuple[float, ...], bool]:
        """Seconds of each repeat, and whether it was given up; writes the outputs."""
        return timed(built.function, self._calls(built, outputs), best, self._repeats)

    # ------------------------------------------------------------ arguments
    def _given(self, key: str, layouts: Sequence[Layout]) -> dict[int, np.ndarray]:
        """Position -> packed array, of the arguments that are read."""
        task, inputs = self._tasks[key], iter(self._inputs(key))
        return {
            index: self._packed.get((key, index), next(inputs), layout)
            for index, (argument, layout) in enumerate(zip(task.program.arguments, layouts, strict=True))
            if not argument.written
        }

    @staticmethod
    def _outputs(program: Program, layouts: Sequence[Layout]) -> dict[int, np.ndarray]:
        """Position -> poisoned array, of the arguments that are written."""
        outputs = {
            index: aligned_empty(layout.physical_shape(argument.shape), argument.dtype)
            for index, (argument, layout) in enumerate(zip(program.arguments, layouts, strict=True))
            if argument.written
        }
        for array in outputs.values():
            poison(array)
        return outputs

    def _calls(self, built: Built, outputs: Mapping[int, np.ndarray]) -> list[list[Any]]:
        """Arguments of one call after the other: constants from cold copies, everything else the same."""
        arguments = self._tasks[built.task].program.arguments
        arrays = {**self._given(built.task, built.layouts), **outputs}
        constant = [i for i, argument in enumerate(arguments) if argument.constant]
        copies = self._copies.of([arrays[i] for i in constant], self._repeats.count + 1)
        warm = {i: lent(array) for i, array in arrays.items() if i not in constant}
        calls = []
        for copy in copies:
            tensors = {**warm, **{i: lent(array) for i, array in zip(constant, copy, strict=True)}}
            calls.append([tensors[i] for i in range(len(arguments))])
        return calls

    # ------------------------------------------------------------ checking
    def _check(self, built: Built, outputs: Mapping[int, np.ndarray], path: str) -> float | None:
        """The largest error of the outputs, as a part of the range.

        Raises:
            Failed: "wrong".
        """
        task = self._tasks[built.task]
        worst: float | None = 0.0
        for (index, got), (want, span) in zip(outputs.items(), _references(path, task.dtypes), strict=True):
            layout = built.layouts[index]
            if got.size == want.size:  # every lane holds a value: compared as it lies in memory
                want = self._packed.get((built.task, index), want, layout)
            else:
                got = layout.unpack(got, want.shape)
            error, reason = compare(got, want, span, replace(task.rounding, exact=built.exact))
            if reason:
                raise Failed("wrong", f"against the unscheduled function: {reason}", error)
            worst = max(worst, error) if worst is not None and error is not None else None
        return worst


@functools.lru_cache(maxsize=_TASKS)
def _references(path: str, dtypes: Sequence[str]) -> list[tuple[np.ndarray, float]]:
    """Results of the unscheduled function, with their ranges."""
    with np.load(path) as saved:
        results = [saved[name].view(dtype) for name, dtype in zip(saved.files, dtypes, strict=True)]
    return [(result, value_range(result)) for result in results]
