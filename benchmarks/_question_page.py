"""Answers of `questions.py`, and the two files that they are written to."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import _measures
import machines
from _common import RESULTS, Row, table, write_text
from _machine import instructions, machine_text, this_machine


@dataclasses.dataclass
class Answer:
    """What a question found.

    Attributes:
        rows: of the table.
        notes: Markdown below it.
        details: plain values for the JSON file.
        explain: puts the reasons of missed bars into the rows; takes a profile each.
    """

    rows: list[Row]
    notes: list[str] = dataclasses.field(default_factory=list)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    explain: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class Page:
    """The two result files.

    Attributes:
        folder: where they are.
        minutes, threads: of this run.
    """

    folder: pathlib.Path
    minutes: float
    threads: int

    @functools.cached_property
    def machine(self) -> dict[str, Any]:
        """This machine with its roofs, measured once."""
        return {**this_machine(), "roofs": _measures.roofs(self.threads)}

    def write(self, answers: Mapping[str, Answer]) -> None:
        """Write what is known so far."""
        document = {
            "machine": self.machine, "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "minutes": self.minutes, "threads": self.threads,
            "rows": [dataclasses.asdict(row) for answer in answers.values() for row in answer.rows],
            "details": {key: answer.details for key, answer in answers.items() if answer.details},
        }  # fmt: skip
        write_text(self.folder / "questions.json", json.dumps(document, indent=1))
        write_text(self.folder / "questions.md", self.markdown(answers))
        if self.folder == RESULTS:
            machines.write()

    def markdown(self, answers: Mapping[str, Answer]) -> str:
        """The table, the reasons of missed bars, and the notes of each question."""
        rows = [row for answer in answers.values() for row in answer.rows]
        about = f"{machine_text(self.machine)}; {instructions(self.machine)}; {self.threads} threads."
        reasons = [f"* {row.what}: {row.details['reason']}" for row in rows if row.details.get("reason")]
        lines = ["# Questions", "", about, "", *table(rows), ""]
        lines += ["Bars that are missed:", "", *reasons, ""] if reasons else []
        return "\n".join([*lines, *(line for answer in answers.values() for line in answer.notes)])
