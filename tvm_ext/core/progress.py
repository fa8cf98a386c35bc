"""Progress of what takes long, on stderr."""

from __future__ import annotations

import sys
import threading
import time


class Progress:
    """Says on stderr what is going on once it has taken two seconds, and then every few seconds.

    On a terminal one line is rewritten and removed at the end; elsewhere lines are added.
    """

    first, interval = 2.0, 5.0

    def __init__(self, label: str) -> None:
        self.label = label
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._shown = False

    def tell(self, label: str) -> None:
        """Change what is going on."""
        self.label = label

    def __enter__(self) -> Progress:
        self._start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._shown and sys.stderr.isatty():
            _write("\r\033[K")

    def _watch(self) -> None:
        wait = self.first
        while not self._done.wait(wait):
            self._shown, terminal = True, sys.stderr.isatty()
            text = f"{self.label} ... {time.monotonic() - self._start:.0f} s"
            _write(f"\r\033[K{text}" if terminal else f"{text}\n")
            wait = 0.5 if terminal else self.interval


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
