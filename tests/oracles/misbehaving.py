"""What a worker must outlive."""

import os
import signal
import time

from .outcome import Outcome
from .pool import Service


def answer(task: str) -> Outcome:
    """Crash, hang, or answer, as told."""
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "hang":
        time.sleep(600)
    if task == "memory":
        bytearray(3 << 30)
    print("what a library prints is no answer")
    return Outcome("pass", "", {"process": os.getpid()})


SERVICE = Service(answer, seconds=3.0, memory=3 << 30)
