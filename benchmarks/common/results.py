"""Results as files: where they go, and how scripts write them."""

import datetime
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tvm_ext.runtime import files

from benchmarks.common.machine import machine_text, this_machine
from benchmarks.common.rows import Row, exit_code, rows_table

FOLDER = pathlib.Path(__file__).resolve().parents[1]
#: What is downloaded or measured for a next run; git ignores it.
CACHE = FOLDER / ".cache"
#: Of all machines, a folder each; and the folder of this one.
ALL_RESULTS = FOLDER / "results"
RESULTS = ALL_RESULTS / this_machine()["name"]


def say(text: str) -> None:
    """Progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def today() -> str:
    """The date in UTC, as results have it."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a file, whole or not at all, that ends with one line break; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, text.rstrip() + "\n")


def write_json(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    """The same of plain values."""
    write_text(path, json.dumps(document, indent=1))


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Plain values of a file; an empty document where there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_page(
    folder: pathlib.Path, name: str, document: Mapping[str, Any], parts: Iterable[str]
) -> None:
    """Write NAME.json and NAME.md into a folder, and print the page.

    Args:
        folder: of a machine's results.
        name: of the files.
        document: plain values.
        parts: of the page, with a free line between them.
    """
    page = "\n\n".join(filter(None, parts))
    write_json(folder / f"{name}.json", document)
    write_text(folder / f"{name}.md", page)
    print(page)


def write_results(
    folder: pathlib.Path, name: str, rows: Sequence[Row], extra: Mapping[str, Any], notes: str,
    measured: Iterable[str] | None = None,
) -> int:  # fmt: skip
    """Write and print the page of rows; arguments as of :func:`write_page`, and what stands beside
    the rows in the document and below them on the page.

    Args:
        measured: how the stored rows begin that these replace; the others stand before these, if
            they are of this machine and these versions. None keeps none.

    Returns:
        The script's exit code: 1 if a bar was missed.
    """
    machine = this_machine()
    stored = read_json(folder / f"{name}.json") if measured is not None else {}
    if stored.get("machine") == json.loads(json.dumps(machine)):
        replaced = tuple(measured or ())
        others = [Row(**row) for row in stored["rows"] if not row["what"].startswith(replaced)]
        rows = [*others, *rows]
    document = {"machine": machine, "rows": [asdict(row) for row in rows], **extra}
    write_page(
        folder, name, document, [f"# {name}", machine_text(machine), rows_table(rows), notes]
    )
    return exit_code(rows)


def write_parts(
    name: str,
    parts: Mapping[str, Callable[[], Mapping[str, Any]]],
    only: Iterable[str],
    page: Callable[[Mapping[str, Any]], str],
    folder: pathlib.Path = RESULTS,
) -> None:
    """Measure parts of a page; the others keep their stored results. Each is stored when it is
    there, and the page is written and printed at the end.

    Args:
        name: of the two files.
        parts: key -> measures it, and gives plain values.
        only: keys of those that are measured.
        page: what was stored -> Markdown.
        folder: of both; by default that of this machine, whose facts each part of it has too.
    """
    stored = read_json(folder / f"{name}.json")
    machine = {"machine": this_machine()} if folder == RESULTS else {}
    for key in only:
        say(f"{key} ...")
        stored[key] = {**machine, **parts[key]()}
        write_json(folder / f"{name}.json", stored)
    text = page(stored)
    write_text(folder / f"{name}.md", text)
    print(text)
