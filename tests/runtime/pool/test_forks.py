"""What is renewed after a fork."""

import gc
import os
import weakref

from tvm_ext.runtime.pool.forks import renew_after_fork


class Lock:
    """Counts how often it was renewed, in a file, which a child shares."""

    def __init__(self, sink: int) -> None:
        self._sink = sink

    def renew(self) -> None:
        os.write(self._sink, b"x")


def test_a_child_renews_what_lives_and_the_parent_nothing() -> None:
    source, sink = os.pipe()
    kept, dropped = Lock(sink), Lock(sink)
    for lock in (kept, dropped):
        renew_after_fork(lock, Lock.renew)
    gone = weakref.ref(dropped)
    del dropped, lock
    gc.collect()
    assert gone() is None
    if (child := os.fork()) == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(sink)
    assert os.read(source, 9) == b"x"
    os.close(source)
    del kept
