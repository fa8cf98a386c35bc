"""The folder of a MetaSchedule database, and the repair of its files after a session that was killed."""

from __future__ import annotations

import json
from pathlib import Path

from ...core.errors import ToolError
from ...core.records.schedule_database import RECORDS, WORKLOADS


def repair(folder: Path) -> int:
    """Cut off a last line that was not written whole: TVM reads all lines or nothing.

    Returns:
        How many lines were cut off.
    """
    return sum(_cut_off(folder / name) for name in (WORKLOADS, RECORDS) if (folder / name).is_file())


def _cut_off(path: Path) -> int:
    text = path.read_bytes()
    whole, _, last = text.rpartition(b"\n")
    if not last:
        return 0
    try:
        json.loads(last)
    except ValueError:
        path.write_bytes(whole + b"\n" if whole else b"")
        return 1
    path.write_bytes(text + b"\n")
    return 0


def make_folder(folder: Path) -> None:
    """The folder, if it is not there.

    Raises:
        ToolError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(
            f"folder {str(folder)!r} for MetaSchedule's database: {error.strerror}",
            fix="name a folder that can be written",
        ) from error
