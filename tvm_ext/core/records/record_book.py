"""Records by task, and the choice among them: which record a compile takes, and why the others do not fit.

A log is lines: rows (:mod:`.record`) and comments, `# {json}`, which AutoTVM's reader skips. A comment of kind
"verdict" says what the end of a tuning session found with the whole model: which configuration to use for a task, or
to use none. The newest verdict of each model decides for it, and what helps in one model is used; without a verdict
the fastest record is. What was measured on another machine is never followed by itself: it is a candidate, to be
measured here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.cpu import host_identity
from ..errors import OptionError
from ..machine import Machine
from .log_line import RecordError, parse, typed
from .record import MACHINE_FIELDS, Record
from .task_key import TaskKey

if TYPE_CHECKING:
    from ..recipe import Config

#: In place of a CPU's identity: measured by the servers of an RPC tracker, which are what `mcpu` names.
REMOTE = "rpc"
#: A longer line is none of ours; reading stops at it before it fills the memory.
MAX_LINE = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """What a session decided on a task, after timing the whole model.

    Attributes:
        recipe, config: to use; None for the default.
        machine: as in a record.
        reason: for people.
        model: that was timed. A task may stand in several models: what helps in one of them is used.
        facts: figures of a choice by measuring: "measured" of "candidates", "seconds" and "default_seconds",
            "model_seconds" and "default_model_seconds" in a call of the model.
    """

    task: TaskKey
    recipe: str | None
    config: Config | None
    machine: Mapping[str, Any]
    session: str = ""
    timestamp: float = 0.0
    reason: str = ""
    model: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)

    def to_line(self) -> str:
        """A comment line, without the line break."""
        fields = {
            "kind": "verdict", "op": self.task.op, "args": self.task.args, "recipe": self.recipe, "config": self.config,
            "machine": dict(self.machine), "session": self.session, "timestamp": round(self.timestamp, 6),
            "reason": self.reason, "model": self.model, **({"facts": dict(self.facts)} if self.facts else {}),
        }  # fmt: skip
        return "# " + json.dumps(fields, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_comment(cls, comment: Mapping[str, Any]) -> Verdict:
        """From the JSON of a comment.

        Raises:
            RecordError: it is none.
        """
        try:
            recipe, config, facts = comment["recipe"], comment["config"], comment.get("facts", {})
            if (recipe is None) != (config is None):
                raise RecordError("a recipe without a configuration, or the other way round")
            return cls(
                TaskKey.of(typed(comment["op"], "op", str), typed(comment["args"], "args", list)),
                recipe if recipe is None else typed(recipe, "recipe", str),
                config if config is None else typed(config, "config", dict), typed(comment["machine"], "machine", dict),
                typed(comment.get("session", ""), "session", str),
                float(typed(comment.get("timestamp", 0.0), "timestamp", int, float)),
                typed(comment.get("reason", ""), "reason", str), typed(comment.get("model", ""), "model", str),
                {name: typed(value, name, int, float) for name, value in typed(facts, "facts", dict).items()},
            )  # fmt: skip
        except (KeyError, RecordError) as error:
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
        comments: other comments that are JSON.
    """

    records: list[Record] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    fingerprint: str = ""
    comments: list[Mapping[str, Any]] = field(default_factory=list)

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
        book, digest = cls(), hashlib.sha256()
        for path in paths:
            for line in lines_of(path):
                digest.update(line.text.encode(errors="replace") + b"\n")
                if line.problem:
                    book.problems.append(Problem(str(path), line.number, line.problem))
                elif isinstance(line.entry, Record):
                    book.records.append(line.entry)
                elif isinstance(line.entry, Verdict):
                    book.verdicts.append(line.entry)
                elif line.entry is not None:
                    book.comments.append(line.entry)
        nothing = not (book.records or book.verdicts)
        return cls(book.records, book.verdicts, book.problems, "" if nothing else digest.hexdigest(), book.comments)

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
        verdict = self.verdict(task, machine)
        if verdict is not None and verdict.config is None:
            return Choice(None, (*refused, f"tuned, and left at the default: {verdict.reason}"))
        if verdict is not None:
            kept = [r for r in fitting if (r.recipe, r.config) == (verdict.recipe, verdict.config)]
            if not kept:
                refused.setdefault(f"no record that fits has what the verdict names: {verdict.recipe} {verdict.config}")
            fitting = kept or fitting
        return Choice(min(fitting, key=lambda r: r.cost, default=None), tuple(refused))

    def candidates(self, task: TaskKey, machine: Machine, versions: Mapping[str, int]) -> list[Record]:
        """Usable records of any machine that may be measured on this one: those of verdicts, then the fastest."""
        named = [(v.recipe, v.config) for v in self._verdicts.get(task, ())]
        fitting = [r for r in self.of(task) if r.usable and not why_no_candidate(r, machine, versions)]
        return sorted(fitting, key=lambda r: ((r.recipe, r.config) not in named, r.cost))

    def verdict(self, task: TaskKey, machine: Machine) -> Verdict | None:
        """The newest verdict of each model decides for it; of these the newest that names a configuration."""
        verdicts = self._verdicts.get(task, ())
        mine = [v for v in verdicts if not (_misfit(v.machine, machine) or _elsewhere(v.machine, machine))]
        newest = {v.model: v for v in sorted(mine, key=lambda v: v.timestamp)}
        return max(newest.values(), key=lambda v: (v.config is not None, v.timestamp), default=None)


@dataclass(frozen=True)
class Choice:
    """The record to use, or None; and why others were refused, in words."""

    record: Record | None
    reasons: tuple[str, ...] = ()


def why_not(record: Record, machine: Machine, versions: Mapping[str, int]) -> str:
    """Why a record is not followed: it fits neither this machine nor the recipes as they are, or was not measured
    here; "" if it may be."""
    return why_no_candidate(record, machine, versions) or _elsewhere(record.machine, machine)


def why_no_candidate(record: Record, machine: Machine, versions: Mapping[str, int]) -> str:
    """Why what a record names cannot even be tried on this machine, by the recipes as they are; "" if it can."""
    if why := _misfit(record.machine, machine):
        return why
    if record.recipe not in versions:
        return f"no recipe {record.recipe!r} may be used here"
    if versions[record.recipe] != record.version:
        return f"made for version {record.version} of the recipe, this is version {versions[record.recipe]}"
    return ""


def machine_fields(machine: Machine, cpu: str = "") -> dict[str, Any]:
    """What a record keeps of a machine.

    Args:
        cpu: what was measured on; "" is this machine.
    """
    return {**{name: getattr(machine, name) for name in MACHINE_FIELDS}, "cpu": cpu or host_identity()}


def _elsewhere(recorded: Mapping[str, Any], machine: Machine) -> str:
    """That a record of another machine is only a candidate; "" of this machine's own."""
    if recorded.get("cpu") == REMOTE and recorded.get("mcpu") == machine.mcpu:
        return ""
    if all(recorded.get(name) == value for name, value in machine_fields(machine).items()):
        return ""
    where = f"{recorded.get('mcpu', 'unknown')!s:.20}; {recorded.get('cpu', 'no identity')!s:.50}"
    return f"recorded on another machine ({where}): a candidate for choose='measure'"


def _misfit(recorded: Mapping[str, Any], machine: Machine) -> str:
    for name, what in (("isa", "instruction set"), ("threads", "number of threads")):
        if recorded.get(name) != getattr(machine, name):
            return f"made for {what} {recorded.get(name, 'unknown')!s:.40}, this is {getattr(machine, name)}"
    return ""


def read_line(line: str) -> Record | Verdict | Mapping[str, Any] | None:
    """A record, a verdict, another comment's JSON, or None for an empty line or a comment in words.

    Raises:
        RecordError: it is none of these.
    """
    if len(line) > MAX_LINE:
        raise RecordError(f"longer than {MAX_LINE} characters")
    text = line.strip()
    if not text:
        return None
    if not text.startswith("#"):
        return Record.from_row(text)
    if not _HEADER.match(text):
        return None
    comment = typed(parse(text[1:]), "comment", dict)
    return Verdict.from_comment(comment) if comment.get("kind") == "verdict" else comment


#: A comment that is JSON; others are words.
_HEADER = re.compile(r'#\s*\{\s*"')


@dataclass(frozen=True)
class Line:
    """A line of a log.

    Attributes:
        entry: see :func:`read_line`; None if there is a problem.
        problem: why it is left out; "" if it is not.
    """

    number: int
    text: str
    entry: Record | Verdict | Mapping[str, Any] | None = None
    problem: str = ""


def lines_of(path: str | Path) -> Iterator[Line]:
    """All lines of a log; bytes that are no UTF-8 are replaced.

    Raises:
        OptionError: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            number = 0
            while line := file.readline(MAX_LINE + 2):
                number, text = number + 1, line.rstrip("\n")
                try:
                    yield Line(number, text, read_line(text))
                except RecordError as error:
                    yield Line(number, text, problem=error.message)
                while not line.endswith("\n") and len(line) > MAX_LINE:  # the rest of a line that is too long
                    line = file.readline(MAX_LINE + 2)
    except OSError as error:
        raise OptionError(f"records {str(path)!r} cannot be read: {error.strerror or error}") from error
