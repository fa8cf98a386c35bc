"""The system call of a thread, and the release of what a fork has lost (see also test_threads.py: forks)."""

import os
import threading

import pytest

from tvm_ext.runtime.pool.lost_waiters import can_release, released, system_call

pytestmark = pytest.mark.skipif(not can_release(), reason="Linux with glibc")


def test_the_system_call_of_a_waiting_thread() -> None:
    source, sink = os.pipe()
    thread = threading.Thread(target=os.read, args=(source, 1), daemon=True)
    thread.start()
    assert thread.native_id is not None
    while len(call := system_call(thread.native_id)) < 2 or call[1] != source:
        pass
    os.write(sink, b"x")
    thread.join()
    assert system_call(thread.native_id) == ()
    os.close(source), os.close(sink)


def test_nothing_is_lost_in_a_process_that_was_not_forked() -> None:
    size = threading.stack_size()
    with released():
        condition = threading.Condition()
        with condition:
            condition.wait(0.01)
    assert threading.stack_size() == size and threading.active_count() >= 1
