"""Permission for the tile registers of AMX: Linux gives them to a process that asks, once, before it uses them.

Tiles are 8 KiB of state that Linux saves for each thread, so a process has to ask for room (arch_prctl with
ARCH_REQ_XCOMP_PERM, since Linux 5.16); without permission the first tile instruction ends it. Threads that exist and
those to come are included. Source: Documentation/arch/x86/xstate.rst.
"""

import ctypes
import errno
import functools
import os
import platform
import sys
from collections.abc import Callable, Iterable

#: The system call: arch_prctl, ARCH_REQ_XCOMP_PERM, tile data.
REQUEST = (158, 0x1023, 18)
#: LLVM's names of what needs the permission.
TILE_FEATURES = ("amx-tile", "amx-bf16", "amx-int8")

_WHY = {
    errno.EOPNOTSUPP: "this CPU, or the virtual machine, has none",
    errno.EINVAL: "this Linux knows none: 5.16 or later does",
    errno.EPERM: "the process may not have them",
    errno.ENOSYS: "a sandbox keeps arch_prctl from the process",
    errno.ENOSPC: "a thread of this process has an alternate signal stack too small to save them on",
}


def request() -> int:
    """Ask Linux; 0, or the number of the error."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return errno.EOPNOTSUPP
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.syscall(*map(ctypes.c_long, REQUEST)) else 0


def refusal(ask: Callable[[], int] | None = None) -> str:
    """Why a process gets no tile registers; "" if it has them.

    Args:
        ask: asks Linux, as :func:`request` does for this process.
    """
    if not (number := (ask or request)()):
        return ""
    return f"Linux gives this process no AMX tile registers: {_WHY.get(number, os.strerror(number))}"


@functools.cache
def why_no_tiles() -> str:
    """:func:`refusal`, asked once in a process."""
    return refusal()


def needs_tiles(features: Iterable[str]) -> bool:
    """Whether code for these LLVM features may use tile registers."""
    return not set(TILE_FEATURES).isdisjoint(features)
