"""The driver: bytes of a program -> a function that runs it, by the functional view, or on the hardware where the
program says so. All that a deployment imports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from .code.program import Program, program_from_bytes
from .rtl import simulator
from .simulation.functional import run_into


def driver(program: bytes) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """A function of (inputs, outputs) that several threads may call at once; it writes the outputs in place.

    Args:
        program: what :meth:`.code.program.Program.to_bytes` gives.

    Raises:
        ProgramError: the bytes are damaged or malformed, or the program's queues deadlock.
        ToolError: the program runs on the hardware, and the extra `rtl` is not installed.
    """
    loaded = program_from_bytes(program)
    _ = loaded.order  # found now, not by the first of the threads
    if loaded.run == "rtl":
        return _on_hardware(loaded)

    def runner(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        run_into(loaded, inputs, outputs)

    return runner


def _on_hardware(program: Program) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """The runner of a program on one chip in a simulator: threads take turns."""
    chip, turn = simulator(program), threading.Lock()

    def runner(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        with turn:
            chip.run_into(inputs, outputs)

    return runner
