"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".tmp"


def temporary_name(path: Path) -> Path:
    """A new hidden name beside `path`, on the same file system."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")


@contextmanager
def whole_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and vanishes when it raises.

    Args:
        path: the file.
        sync: wait until the data is on disk, so that the file is whole after a power cut too.

    Raises:
        OSError: it cannot be written.
    """
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
