"""Imported by a process of its own: Linux, when it is asked, gives it tile registers, and the emulator stands for them.

Only where the CPU has none. A process that does not ask is killed by its first tile instruction, as on a CPU with AMX.
Importing it changes the process: tests name it (`GRANTED`), and do not import it.
"""

import collections
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tvm_ext.runtime import cpu, tiles

from . import FOLDER
from .amx import emulated

_open = ExitStack()


class _Noted(collections.Counter[str]):
    """Counts whose names are files, for another process to see."""

    def __missing__(self, name: str) -> int:
        Path(os.environ[FOLDER], name).touch()
        return 0


def emulate() -> None:
    """Execute tile instructions from now on."""
    _open.enter_context(emulated()).executed = _Noted()


def grant(ask: Callable[[], int] | None = None) -> str:
    """In the place of `tiles.refusal`; of a question that another process answers (it emulates already) only asked."""
    if ask is not None:
        ask()
    else:
        emulate()
    return ""


_flags = cpu.cpu_flags() | {flag for name in tiles.TILE_FEATURES for flag in cpu.FLAGS_OF_FEATURE[name]}
cpu.cpu_flags = lambda: _flags  # type: ignore[assignment,misc]
tiles.refusal = grant
tiles.why_no_tiles.cache_clear()
