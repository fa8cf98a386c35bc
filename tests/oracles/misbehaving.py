"""What a worker must outlive."""

import os
import signal
import time

from .outcome import Outcome
from .pool import Service


def answer(task: str) -> Outcome:
    """Crash, hang, wait for ever, or answer, as told."""
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    while task == "hang":
        pass
    if task == "wait":
        time.sleep(600)
    if task == "memory":
        bytearray(3 << 30)
    print("what a library prints is no answer")
    return Outcome("pass", "", {"process": os.getpid()})


SERVICE = Service(answer, compiles=False, seconds=0.2, memory=3 << 30)
