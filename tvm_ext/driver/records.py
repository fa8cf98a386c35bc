"""Which tuning records a compile may use: those of the logs it names, or those shipped with this library."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ..core.errors import OptionError
from ..core.options import CompileOptions
from ..core.record_book import RecordBook

#: Logs shipped with the library.
SHIPPED = Path(__file__).parents[1] / "tuning_logs"


def book_of(options: CompileOptions) -> RecordBook:
    """The records that `options.records` names; read once, and again when a file changes.

    Raises:
        OptionError: a file that is named cannot be read, or no line of it is a record.
    """
    if options.records is None:
        return RecordBook()
    if options.records == "auto":
        return _read(tuple((str(path), _state(path)) for path in sorted(SHIPPED.glob("*.json"))))
    paths = [Path(path).expanduser() for path in options.records]
    book = _read(tuple((str(path), _state(path)) for path in paths))
    if not book.fingerprint:
        problem = f" ({book.problems[0]})" if book.problems else ""
        raise OptionError(
            f"records={list(options.records)}: no line is a record{problem}",
            fix="name a log that `tvm-ext tune` wrote; `tvm-ext log validate` says what is wrong with its lines",
        )
    return book


@functools.lru_cache(maxsize=8)
def _read(files: tuple[tuple[str, tuple[int, int]], ...]) -> RecordBook:
    return RecordBook.read(path for path, _ in files)


def _state(path: Path) -> tuple[int, int]:
    """Size and time of change.

    Raises:
        OptionError: there is no such file.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise OptionError(
            f"records {str(path)!r} cannot be read: {error.strerror}",
            fix="give the path of a log, or records=None for the defaults",
        ) from error
    return found.st_size, found.st_mtime_ns
