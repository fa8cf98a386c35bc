"""Destroying condition variables in a child process whose waiting threads were lost in the fork.

glibc's `pthread_cond_destroy` waits until every waiter has left. A waiter leaves by taking 8 from a word of the
variable (its references, with 4 set while somebody destroys it) and waking that word. In a forked child the waiters do
not exist any more, so another thread does it in their place: Linux says which word the destroying thread waits for.
Source: glibc, nptl/pthread_cond_destroy.c and __condvar_confirm_wakeup in nptl/pthread_cond_wait.c (2.25 and later).
"""

import contextlib
import ctypes
import os
import platform
import threading
import time
from collections.abc import Iterator

_WAIT, _WAKE = 0x80, 0x81  # FUTEX_WAIT and FUTEX_WAKE on memory of one process
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
_REFERENCE, _DESTROYED = 8, 4


def system_call(thread: int) -> tuple[int, ...]:
    """Number and arguments of the system call that an OS thread of this process is in; none if it runs, or if the
    system does not say.
    """
    try:
        with open(f"/proc/self/task/{thread}/syscall", encoding="ascii") as file:
            return tuple(int(word, 0) for word in file.read().split())
    except (OSError, ValueError):  # "running" is no number
        return ()


def can_release() -> bool:
    """Whether :func:`released` works here: Linux with /proc, and glibc."""
    return bool(_FUTEX) and platform.libc_ver()[0] == "glibc" and os.access("/proc/self/task", os.R_OK) and _says()


def _says() -> bool:
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/syscall", "rb") as file:
            return bool(file.read())
    except OSError:
        return False


@contextlib.contextmanager
def released() -> Iterator[None]:
    """What this thread destroys inside does not wait for threads that a fork has lost."""
    done = threading.Event()
    helper = threading.Thread(target=_release, args=(threading.get_native_id(), done), daemon=True)
    _start_apart(helper)
    try:
        yield
    finally:
        done.set()
        helper.join()


def _start_apart(thread: threading.Thread) -> None:
    """Start a thread that does not take the stack, and with it the identity, of a lost thread: of a larger one."""
    import resource

    usual = resource.getrlimit(resource.RLIMIT_STACK)[0]
    before = threading.stack_size(max(64 << 20, 2 * usual if 0 < usual < 1 << 34 else 0))
    try:
        thread.start()
    finally:
        threading.stack_size(before)


def _release(thread: int, done: threading.Event) -> None:
    libc = ctypes.CDLL(None)
    while not done.is_set():
        number, word, operation, value, *_ = (*system_call(thread), 0, 0, 0, 0)
        waiters = value - _DESTROYED
        if (number, operation) == (_FUTEX, _WAIT) and value & _DESTROYED and waiters >= _REFERENCE:
            memory = ctypes.c_uint32.from_address(word)
            if memory.value == value:  # it waits, and nobody else is left who would change it
                memory.value = value % _REFERENCE
                libc.syscall(_FUTEX, ctypes.c_void_p(word), _WAKE, 1 << 30, None, None, 0)
        time.sleep(20e-6)
