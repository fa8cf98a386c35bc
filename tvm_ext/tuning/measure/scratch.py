"""A temporary folder that does not outlive its process for long: what a killed one leaves, the next one removes."""

import contextlib
import fcntl
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "tvm-ext-measure-"
#: Seconds that a folder is left alone: its owner may not have locked it yet.
_NEW = 60.0


class Scratch:
    """A folder of this process, locked as long as it is in use. `name` is its path."""

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.name = self._folder.name
        self._lock = Path(self.name, "lock").open("wb")  # noqa: SIM115  (closed by cleanup)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        """Release the lock and remove the folder."""
        self._lock.close()
        self._folder.cleanup()


def remove_abandoned(parent: Path, age: float = _NEW) -> None:
    """Remove folders whose process was killed: nobody holds their lock.

    Args:
        age: seconds that a folder must have.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            if time.time() - folder.stat().st_mtime < age:
                continue
            with (folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
