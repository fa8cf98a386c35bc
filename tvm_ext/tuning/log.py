"""Logs of tuning: appended to by one session or several, whole lines only, and rewritten only beside and renamed.

A line is written by one call under a lock of the file, so two sessions may share a log, and one may be pruned or merged
while another is appended to it. A session that is killed leaves at most one line cut off, its last; the next writer
begins a new line behind it, so no record is ever glued to it.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import OptionError, ToolError
from ..core.machine import Machine
from ..core.recipe import config_text
from ..core.records.record import Record
from ..core.records.record_book import Line, Verdict, lines_of, machine_fields
from ..core.records.task_key import TaskKey
from ..runtime.files import write_whole
from ..runtime.spec import installed_versions


class TuningLog:
    """A log that is appended to.

    Args:
        path: the file; it is made with the first line.

    Raises:
        ToolError: it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._target, self._version = "llvm", installed_versions().get("tvm", "")
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise ToolError(f"log {str(path)!r}: no file can be written there", fix="give the path of a file")

    def begin(self, session: str, machine: Machine, facts: Mapping[str, Any]) -> None:
        """Note that a session begins: a comment with the machine, the versions and what is tuned."""
        self._target = f"llvm -mcpu={machine.mcpu} -num-cores={machine.threads}"
        header = {
            "kind": "session", "session": session, "time": round(time.time(), 3), "machine": machine_fields(machine),
            "versions": dict(installed_versions()), **facts,
        }  # fmt: skip
        self.comment(header)

    def comment(self, facts: Mapping[str, Any]) -> None:
        """Write a comment of plain values."""
        self._write("# " + json.dumps(facts, separators=(",", ":")))

    def append(self, record: Record) -> None:
        """Write a record; it is on disk, as far as this process can say, when this returns."""
        self._write(record.to_row(self._target, self._version))

    def verdict(self, verdict: Verdict) -> None:
        """Write what the end of a session decided on a task."""
        self._write(verdict.to_line())

    def _write(self, line: str) -> None:
        try:
            with locked(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
                start = "\n" if _cut_off(file) else ""
                _write_all(file, (start + line + "\n").encode())
        except OSError as error:
            raise ToolError(
                f"log {str(self.path)!r} cannot be written: {error.strerror}", fix="give another path"
            ) from error


@contextlib.contextmanager
def locked(path: Path, flags: int) -> Iterator[int]:
    """A file, open and locked; opened again if another process renamed a new one into its place meanwhile."""
    while True:
        file = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _still_there(file, path):
                yield file
                return
        finally:
            os.close(file)  # and with it goes the lock


def _still_there(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _cut_off(file: int) -> bool:
    """Whether the last line of a file has no end."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite of logs did: rows and verdicts before and after, and lines that were left out, with reasons."""

    records: tuple[int, int]
    verdicts: tuple[int, int]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        (had, kept), (old, new) = self.records, self.verdicts
        text = f"{kept} of {had} records and {new} of {old} verdicts kept"
        return text + "".join(f"\nleft out: {problem}" for problem in self.problems)


def merge(paths: Iterable[str | os.PathLike[str]], output: str | os.PathLike[str]) -> Rewritten:
    """Write all lines of several logs to one, each once and as it is, in order of time.

    Args:
        paths: logs; `output` may be one of them.

    Raises:
        OptionError: a log cannot be read, or `output` exists and is none of them.
        ToolError: the output cannot be written.
    """
    sources, target = [Path(path) for path in paths], Path(output)
    if target.exists() and not any(source.exists() and target.samefile(source) for source in sources):
        raise OptionError(
            f"{target} exists, and is not among the logs to merge: its records would be lost",
            fix="name it among them too, or write to another file",
        )
    with _kept_still(target):
        lines, problems = _read(sources)
        return _rewrite(lines, lines, problems, target)


def prune(path: str | os.PathLike[str], keep: int, output: str | os.PathLike[str] | None = None) -> Rewritten:
    """Keep of each task, recipe and machine the fastest records, those that verdicts name, and the newest verdict.

    Args:
        keep: records of each task, recipe and machine; 0 for those of verdicts only.
        output: where to write; None for the log itself.

    Raises:
        OptionError: the log cannot be read, or `keep` is below zero.
        ToolError: the output cannot be written.
    """
    if keep < 0:
        raise OptionError(f"keep={keep}: the number of records to keep of each task is needed")
    source = Path(path)
    target = source if output is None else Path(output)
    with _kept_still(target):
        lines, problems = _read([source])
        wanted = _fastest(lines, keep) | {text for _, text in _latest(lines).values()}
        sessions = {line.entry.session for line in lines if isinstance(line.entry, _OURS) and line.text in wanted}
        kept = [line for line in lines if line.text in wanted or _still_meant(line, sessions)]
        return _rewrite(lines, kept, problems, target)


_OURS = (Record, Verdict)


@contextlib.contextmanager
def _kept_still(path: Path) -> Iterator[None]:
    """No session appends to a log while it is read and replaced; what it has to say waits, and goes to the new file."""
    with contextlib.ExitStack() as stack:
        if path.exists():
            try:
                stack.enter_context(locked(path, os.O_RDONLY))
            except OSError as error:
                wrong = f"log {str(path)!r} cannot be read: {error.strerror}"
                raise ToolError(wrong, fix="give another path") from error
        yield


def _read(paths: Sequence[Path]) -> tuple[list[Line], list[str]]:
    """Lines that say something, and what is wrong with others."""
    lines: list[Line] = []
    problems: list[str] = []
    for path in paths:
        for line in lines_of(path):
            if line.problem:
                problems.append(f"{path}:{line.number}: {line.problem}")
            elif line.text.strip():
                lines.append(line)
    return lines, problems


def _fastest(lines: Sequence[Line], keep: int) -> set[str]:
    """Texts of the fastest records of each task, recipe and machine, and of those that the newest verdicts name."""
    verdicts = [verdict for verdict, _ in _latest(lines).values()]
    named = {(v.task, v.recipe, config_text(v.config)) for v in verdicts if v.config is not None}
    groups: dict[tuple[TaskKey, str, str], set[tuple[float, str]]] = {}
    wanted: set[str] = set()
    for record, text in [(line.entry, line.text) for line in lines if isinstance(line.entry, Record)]:
        if not record.usable:
            continue
        groups.setdefault((record.task, record.recipe, _machine(record, text)), set()).add((record.cost, text))
        if (record.task, record.recipe, config_text(record.config)) in named:
            wanted.add(text)
    return wanted.union(*({text for _, text in sorted(rows)[:keep]} for rows in groups.values()))


def _latest(lines: Sequence[Line]) -> dict[tuple[TaskKey, str, str], tuple[Verdict, str]]:
    """Task, machine and model -> their newest verdict, and its text."""
    verdicts = [(line.entry, line.text) for line in lines if isinstance(line.entry, Verdict)]
    verdicts.sort(key=lambda pair: pair[0].timestamp)
    return {(verdict.task, _machine(verdict, text), verdict.model): (verdict, text) for verdict, text in verdicts}


def _machine(entry: Record | Verdict, text: str) -> str:
    """The machine of a row as text; AutoTVM's rows have a target instead."""
    if not entry.machine and isinstance(entry, Record):
        return str(json.loads(text)["input"][0])
    return json.dumps([entry.machine.get(name) for name in ("isa", "mcpu", "threads", "cpu")])


def _still_meant(line: Line, sessions: set[str]) -> bool:
    """Whether a comment is worth keeping: words are, and what a session said of itself while it has rows."""
    if isinstance(line.entry, _OURS):
        return False
    return line.entry is None or line.entry.get("kind") != "session" or line.entry.get("session") in sessions


def _time(line: Line) -> float:
    """When a line was written; comments in words come first."""
    if isinstance(line.entry, _OURS):
        return line.entry.timestamp
    time = line.entry.get("time") if line.entry is not None else None
    return float(time) if isinstance(time, int | float) else 0.0


def _rewrite(had: Sequence[Line], kept: Sequence[Line], problems: Sequence[str], output: Path) -> Rewritten:
    """Write lines, each once, in order of time; the file appears whole or not at all."""
    once = list({line.text.strip(): line for line in sorted(kept, key=_time)}.values())
    data = "".join(line.text.strip() + "\n" for line in once).encode(errors="replace")
    write_whole(os.path.realpath(output), lambda stream: stream.write(data))

    def count(kind: type) -> tuple[int, int]:
        before, after = (sum(isinstance(line.entry, kind) for line in lines) for lines in (had, once))
        return before, after

    return Rewritten(count(Record), count(Verdict), tuple(problems))
