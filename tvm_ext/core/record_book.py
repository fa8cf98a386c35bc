"""Records by task, and the choice among them: which record a compile takes, and why the others do not fit.

A log is lines: rows (:mod:`.record`) and comments, `# {json}`, which AutoTVM's reader skips. A comment of kind
"verdict" says what the end of a tuning session found with the whole model: which configuration to use for a task, or
to use none. The newest verdict on a task decides; without one the fastest record does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import OptionError
from .machine import Machine
from .record import MACHINE_FIELDS, Record, RecordError
from .task_key import TaskKey

if TYPE_CHECKING:
    from .recipe import Config

#: A longer line is none of ours; reading stops at it before it fills the memory.
MAX_LINE = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """What a session decided on a task, after timing the whole model.

    Attributes:
        recipe, config: to use; None for the default.
        machine: as in a record.
        reason: for people.
    """

    task: TaskKey
    recipe: str | None
    config: Config | None
    machine: Mapping[str, Any]
    session: str = ""
    timestamp: float = 0.0
    reason: str = ""

    def to_line(self) -> str:
        """A comment line, without the line break."""
        fields = {
            "kind": "verdict", "op": self.task.op, "args": self.task.args, "recipe": self.recipe, "config": self.config,
            "machine": dict(self.machine), "session": self.session, "timestamp": round(self.timestamp, 6),
            "reason": self.reason,
        }  # fmt: skip
        return "# " + json.dumps(fields, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_comment(cls, comment: Mapping[str, Any]) -> Verdict:
        """From the JSON of a comment.

        Raises:
            RecordError: it is none.
        """
        try:
            config = comment["config"]
            return cls(
                TaskKey.of(str(comment["op"]), comment["args"]), comment["recipe"],
                dict(config) if config is not None else None, dict(comment["machine"]),
                str(comment.get("session", "")), float(comment.get("timestamp", 0.0)), str(comment.get("reason", "")),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"no verdict ({type(error).__name__}: {str(error)[:100]})") from error


@dataclass(frozen=True)
class Problem:
    """A line that was left out, and why."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass
class RecordBook:
    """Records and verdicts of some logs.

    Attributes:
        problems: lines that were left out.
        fingerprint: hash of what was read; "" if nothing was.
    """

    records: list[Record] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    fingerprint: str = ""

    def __post_init__(self) -> None:
        self._by_task: dict[TaskKey, list[Record]] = {}
        for record in self.records:
            self._by_task.setdefault(record.task, []).append(record)
        self._verdicts: dict[TaskKey, list[Verdict]] = {}
        for verdict in self.verdicts:
            self._verdicts.setdefault(verdict.task, []).append(verdict)

    @classmethod
    def read(cls, paths: Iterable[str | Path]) -> RecordBook:
        """All lines of some logs; what is no record is a problem, not an error.

        Raises:
            OptionError: a file cannot be read.
        """
        records: list[Record] = []
        verdicts: list[Verdict] = []
        problems: list[Problem] = []
        digest = hashlib.sha256()
        for path in paths:
            for number, line in _lines(Path(path)):
                digest.update(line.encode(errors="replace") + b"\n")
                try:
                    found = read_line(line)
                except RecordError as error:
                    problems.append(Problem(str(path), number, error.message))
                    continue
                if isinstance(found, Record):
                    records.append(found)
                elif isinstance(found, Verdict):
                    verdicts.append(found)
        nothing = not (records or verdicts)
        return cls(records, verdicts, problems, "" if nothing else digest.hexdigest())

    def of(self, task: TaskKey) -> Sequence[Record]:
        """All records of a task, in the order of the logs."""
        return self._by_task.get(task, [])

    def best(self, task: TaskKey, machine: Machine, versions: Mapping[str, int]) -> Choice:
        """The record to use for a task.

        Args:
            versions: recipe -> its version now, of all recipes that may be used.
        """
        refused: dict[str, None] = {}
        fitting: list[Record] = []
        for record in self.of(task):
            if not record.usable:
                continue
            if why := why_not(record, machine, versions):
                refused.setdefault(f"record of {record.recipe}: {why}")
            else:
                fitting.append(record)
        verdict = self._verdict(task, machine)
        if verdict is not None and verdict.config is None:
            return Choice(None, (*refused, f"tuned, and left at the default: {verdict.reason}"))
        if verdict is not None:
            kept = [r for r in fitting if (r.recipe, r.config) == (verdict.recipe, verdict.config)]
            fitting = kept or fitting
        return Choice(min(fitting, key=lambda r: r.cost, default=None), tuple(refused))

    def _verdict(self, task: TaskKey, machine: Machine) -> Verdict | None:
        mine = [v for v in self._verdicts.get(task, ()) if not _other_machine(v.machine, machine)]
        return max(mine, key=lambda v: v.timestamp, default=None)


@dataclass(frozen=True)
class Choice:
    """The record to use, or None; and why others were refused, in words."""

    record: Record | None
    reasons: tuple[str, ...] = ()


def why_not(record: Record, machine: Machine, versions: Mapping[str, int]) -> str:
    """Why a record does not fit this machine or the recipes as they are; "" if it does."""
    if why := _other_machine(record.machine, machine):
        return why
    if record.recipe not in versions:
        return f"no recipe {record.recipe!r} may be used here"
    if versions[record.recipe] != record.version:
        return f"made for version {record.version} of the recipe, this is version {versions[record.recipe]}"
    return ""


def machine_fields(machine: Machine) -> dict[str, Any]:
    """What a record keeps of a machine."""
    return {name: getattr(machine, name) for name in MACHINE_FIELDS}


def _other_machine(recorded: Mapping[str, Any], machine: Machine) -> str:
    for name, what in (("isa", "instruction set"), ("threads", "number of threads")):
        if recorded.get(name) != getattr(machine, name):
            return f"made for {what} {recorded.get(name, 'unknown')}, this is {getattr(machine, name)}"
    return ""


def read_line(line: str) -> Record | Verdict | Mapping[str, Any] | None:
    """A record, a verdict, another comment's JSON, or None for an empty line or a comment in words.

    Raises:
        RecordError: it is none of these.
    """
    text = line.strip()
    if not text:
        return None
    if len(text) > MAX_LINE:
        raise RecordError(f"longer than {MAX_LINE} bytes")
    if not text.startswith("#"):
        return Record.from_row(text)
    try:
        comment = json.loads(text[1:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(comment, dict):
        return None
    return Verdict.from_comment(comment) if comment.get("kind") == "verdict" else comment


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of each line; bytes that are no UTF-8 are replaced.

    Raises:
        OptionError: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            number = 0
            while line := file.readline(MAX_LINE + 2):
                number += 1
                yield number, line.rstrip("\n")
                while not line.endswith("\n") and len(line) > MAX_LINE:  # the rest of a line that is too long
                    line = file.readline(MAX_LINE + 2)
    except OSError as error:
        raise OptionError(f"records {str(path)!r} cannot be read: {error.strerror or error}") from error
