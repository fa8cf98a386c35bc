"""What the benchmark scripts share: where results go, probes in fresh processes, rows with a bar, tables as JSON and
Markdown."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from _machine import machine_text, this_machine

from tvm_ext.runtime.files import write_whole

FOLDER = pathlib.Path(__file__).resolve().parent
#: Of all machines, a folder each; and the folder of this one.
ALL_RESULTS = FOLDER / "results"
RESULTS = ALL_RESULTS / this_machine()["name"]


class Unavailable(RuntimeError):
    """A row cannot be measured here; the message is what the table says instead of a figure."""


@dataclass(frozen=True)
class Row:
    """One line of a result: what was measured, the bar, the figure as text, whether the bar was met (None: nothing was
    measured that could meet it)."""

    what: str
    bar: str
    measured: str
    met: bool | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Probe:
    """Runs of one probe: seconds from starting the process to its answer, and the answers."""

    seconds: tuple[float, ...]
    answers: tuple[dict[str, Any], ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def answer(self, key: str) -> float:
        """Median of a figure over the answers."""
        return float(statistics.median(answer[key] for answer in self.answers))


def say(text: str) -> None:
    """Progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def probes(commands: Mapping[str, Sequence[str]], times: int, env: Mapping[str, str]) -> dict[str, Probe]:
    """Run probes (subcommands of `_probes.py`) in fresh processes, interleaved.

    Args:
        commands: name -> arguments.
        times: measured runs of each; one more goes before, so that files are in the page cache.
        env: variables to add.
    """
    found: dict[str, list[tuple[float, dict[str, Any]]]] = {name: [] for name in commands}
    for number in range(times + 1):
        for name, arguments in commands.items():
            run = fresh([sys.executable, str(FOLDER / "_probes.py"), *arguments], env)
            if number:
                found[name].append(run)
    return {name: Probe(tuple(s for s, _ in runs), tuple(a for _, a in runs)) for name, runs in found.items()}


def probe(name: str, *arguments: object, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One run of a probe in a fresh process: its answer."""
    return fresh([sys.executable, str(FOLDER / "_probes.py"), name, *map(str, arguments)], env or {})[1]


def fresh(command: Sequence[str], env: Mapping[str, str]) -> tuple[float, dict[str, Any]]:
    """Seconds from start to the one line of JSON a process prints, and that line; what the process does after is free.

    Raises:
        RuntimeError: it printed none; says what it said on stderr.
    """
    with tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **env}, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.perf_counter() - start
        try:
            return seconds, json.loads(line)
        except ValueError:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command[1:3])} failed:\n{errors.read()}") from None


def write_results(folder: pathlib.Path, name: str, rows: Sequence[Row], extra: Mapping[str, Any], notes: str) -> None:
    """Write NAME.json and NAME.md into a folder, and print the table."""
    machine = this_machine()
    document = {"machine": machine, "rows": [asdict(row) for row in rows], **extra}
    markdown = "\n".join([f"# {name}", "", machine_text(machine), "", *table(rows), "", notes])
    write_text(folder / f"{name}.json", json.dumps(document, indent=1))
    write_text(folder / f"{name}.md", markdown)
    print(markdown)


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a file, whole or not at all, that ends with one line break."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (text.rstrip() + "\n").encode()
    write_whole(path, lambda stream: stream.write(data))


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [("what", "bar", "measured", "met"), *((r.what, r.bar, r.measured, met_text(r.met)) for r in rows)]
    return markdown_table(cells)


def met_text(met: bool | None) -> str:
    """Whether a bar is met, in a table's cell."""
    return "-" if met is None else "yes" if met else "NO"


def markdown_table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; the first row is its head."""
    head, *body = ["| " + " | ".join(text.replace("|", "/") for text in row) + " |" for row in cells]
    return [head, "|" + " --- |" * len(cells[0]), *body]
