"""The committed table: case -> outcome of each contender, as text; and its summary."""

import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.oracles.outcome import KINDS, kind_of
from tests.oracles.table import markdown, read_rows, versions, write_rows

from .cases import is_plain

PATH = pathlib.Path(__file__).with_name("results.json")
Row = dict[str, str]


def read_table(path: pathlib.Path = PATH) -> dict[str, Row]:
    """Case -> contender -> outcome."""
    return read_rows(path)


def write_table(rows: Mapping[str, Row], path: pathlib.Path = PATH) -> None:
    """Write the table, one case a line, and the summary beside it."""
    write_rows(path, dict(sorted(rows.items())), summary(rows))


def summary(rows: Mapping[str, Row]) -> str:
    """The table in numbers, as Markdown."""
    parts = [f"# ONNX backend tests, node cases\n\nMade by `python -m tests.onnx_backend.refresh`: {versions()}.\n"]
    for title, plain in (("Operators", True), ("Functions that define operators, expanded", False)):
        parts.append(f"## {title}\n\n{_counts([row for name, row in rows.items() if is_plain(name) == plain])}")
    return "\n".join(parts)


def _counts(rows: Iterable[Row]) -> str:
    rows = list(rows)
    able = [row for row in rows if row.get("onnxruntime") == "pass"]
    lines = []
    for contender in dict.fromkeys(c for row in rows for c in row):
        counts = Counter(kind_of(row[contender]) for row in rows if contender in row)
        both = sum(row.get(contender) == "pass" for row in able)
        share = f"{both} ({100 * both / max(len(able), 1):.1f} %)"
        lines.append([contender, *(counts[kind] for kind in KINDS), share])
    return markdown([f"{len(rows)} cases", *KINDS, f"of the {len(able)} that onnxruntime passes"], lines)
