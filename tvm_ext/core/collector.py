"""Python's collector of cycles, while what is made lives on: imports of TVM, and compiles."""

import gc
import threading

#: Objects more than there were, at which Python looks for cycles.
_YOUNG = 50_000


class _RareCollections:
    """A context of any number of threads in which Python's collector of cycles runs less often, until the last of them
    leaves it: most objects that a compile makes live to its end, and hardly any is in a cycle."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, gc.get_threshold()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = young, *rest = gc.get_threshold()
                gc.set_threshold(young and max(young, _YOUNG), *rest)  # 0: its user has it off
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                gc.set_threshold(*self._before)


#: The one of this process.
rare_collections = _RareCollections()
