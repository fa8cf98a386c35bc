"""Which tuning records a compile may use: those of the logs it names, or those shipped with this library; and those
of this machine's timing cache, with `choose="measure"`.

A folder among them is a MetaSchedule database: schedules of the kernels that recipes make.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import OptionError
from ..core.machine import Machine, machine_for
from ..core.options import CompileOptions
from ..core.records.record import Record
from ..core.records.record_book import RecordBook, lines_of
from ..runtime.cpu import host_identity
from ..runtime.spec import installed_versions
from .cache import TIMINGS, default_folder

if TYPE_CHECKING:
    from ..core.records.schedule_database import MetaScheduleDatabase

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
    paths = [path for path in _paths(options) if not path.is_dir()]
    if not paths:
        return RecordBook()
    book = _read(tuple((str(path), _state(path)) for path in paths))
    if not book.fingerprint:
        problem = f" ({book.problems[0]})" if book.problems else ""
        fix = "name a log that `tvm-ext tune` wrote; `tvm-ext log validate` says what is wrong with its lines"
        raise OptionError(f"records={list(options.records)}: no line is a record{problem}", fix=fix)
    return book


def timing_log(machine: Machine) -> Path:
    """Where times of this machine are kept for `choose="measure"`: a tuning log in the cache's folder, one for each
    machine, number of threads, set of instructions, and version of TVM and of this library."""
    kind = {name: value for name, value in machine.as_dict().items() if name != "rates"}
    facts = {"machine": kind, "host": host_identity(), "versions": installed_versions()}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return default_folder() / f"{TIMINGS}{digest[:16]}.json"


def timings_of(options: CompileOptions, machine: Machine) -> RecordBook:
    """What the timing cache holds, with `choose="measure"`; nothing if there is none."""
    if options.choose != "measure":
        return RecordBook()
    path = timing_log(machine)
    try:
        return _read(((str(path), _state(path)),))
    except OptionError:
        return RecordBook()


def place_of(record: Record, options: CompileOptions) -> str:
    """Where a record stands, as "FILE:LINE"; "" if it is in none of the logs that a compile may use."""
    paths = sorted(SHIPPED.glob("*.json")) if options.records == "auto" else _paths(options)
    if options.choose == "measure":
        paths = [timing_log(machine_for(options)), *paths]
    row = record.to_row()
    for path in paths:
        for line in lines_of(path) if path.is_file() else ():
            if isinstance(line.entry, Record) and line.entry.to_row() == row:
                return f"{path}:{line.number}"
    return ""


def record_at(place: str) -> Record:
    """The record at "FILE:LINE".

    Raises:
        OptionError: the file cannot be read, or that line is no record.
    """
    path, colon, number = place.rpartition(":")
    if not (colon and path and number.isdecimal()):
        raise OptionError(f"record {place!r}: FILE:LINE is needed")
    line = next((line for line in lines_of(path) if line.number == int(number)), None)
    if line is None or not isinstance(line.entry, Record):
        raise OptionError(f"record {place!r}: that line is no record", fix="`tvm-ext log show` lists those of a log")
    return line.entry


def schedules_of(options: CompileOptions) -> MetaScheduleDatabase | None:
    """The MetaSchedule database among `options.records`; None if there is none.

    Raises:
        OptionError: there are several, or a folder is none.
    """
    folders = [path for path in _paths(options) if path.is_dir()]
    if not folders:
        return None
    if len(folders) > 1:
        raise OptionError(f"records={list(map(str, folders))}: one MetaSchedule database can be used, not several")
    from ..core.records.schedule_database import MetaScheduleDatabase

    return MetaScheduleDatabase(folders[0])


def fingerprint_of(options: CompileOptions, machine: Machine) -> str:
    """Changes when what a compile may use does."""
    schedules, timings = schedules_of(options), timings_of(options, machine)
    return " ".join([book_of(options).fingerprint, timings.fingerprint, schedules.fingerprint if schedules else ""])


def _paths(options: CompileOptions) -> list[Path]:
    paths = () if options.records in (None, "auto") else options.records or ()
    return [Path(path).expanduser() for path in paths]


@functools.lru_cache(maxsize=8)
def _read(files: tuple[tuple[str, tuple[int, int]], ...]) -> RecordBook:
    return RecordBook.read(path for path, _ in files)


def _state(path: Path) -> tuple[int, int]:
    """Size and time of change.

    Raises:
        OptionError: there is no such file.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        fix = "give the path of a log, or records=None for the defaults"
        raise OptionError(f"records {str(path)!r} cannot be read: {error.strerror}", fix=fix) from error
    return status.st_size, status.st_mtime_ns
