"""The driver: bytes of a program -> a function that runs it, by the functional view. All that a deployment imports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .code.program import program_from_bytes
from .simulation.functional import run_into


def driver(program: bytes) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """A function of (inputs, outputs) that several threads may call at once; it writes the outputs in place.

    Args:
        program: what :meth:`.code.program.Program.to_bytes` gives.

    Raises:
        ProgramError: the bytes are damaged or malformed, or the program's queues deadlock.
    """
    loaded = program_from_bytes(program)
    _ = loaded.order  # found now, not by the first of the threads

    def runner(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        run_into(loaded, inputs, outputs)

    return runner
