"""The committed table: case -> outcome of each contender; what is better, what is worse, and its summary."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping

from .cases import is_plain

PATH = pathlib.Path(__file__).with_name("results.json")
#: From best to worst. A refusal says beforehand that a case cannot be compiled; a failure comes by accident.
KINDS = ("pass", "refused", "failed", "wrong", "hang", "crash")

Row = dict[str, str]


def kind_of(outcome: str) -> str:
    """The outcome without its reason."""
    return outcome.partition(":")[0]


def is_worse(found: str, committed: str) -> bool:
    """Whether an outcome is a step back."""
    return KINDS.index(kind_of(found)) > KINDS.index(kind_of(committed))


def read_table(path: pathlib.Path = PATH) -> dict[str, Row]:
    """Case -> contender -> outcome."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_table(rows: Mapping[str, Row], path: pathlib.Path = PATH) -> None:
    """Write the table, one case a line, and the summary beside it."""
    lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    path.with_suffix(".md").write_text(summary(rows))


def summary(rows: Mapping[str, Row]) -> str:
    """The table in numbers, as Markdown."""
    import onnx
    import onnxruntime
    import tvm

    versions = f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, TVM {tvm.__version__}"
    parts = [f"# ONNX backend tests, node cases\n\nMade by `python -m tests.onnx_backend.refresh`: {versions}.\n"]
    for title, names in _sections(rows):
        parts.append(f"## {title}\n\n{_counts({name: rows[name] for name in names})}")
    return "\n".join(parts)


def _sections(rows: Mapping[str, Row]) -> Iterable[tuple[str, list[str]]]:
    yield "Operators", [name for name in rows if is_plain(name)]
    yield "Functions that define operators, expanded", [name for name in rows if not is_plain(name)]


def _counts(rows: Mapping[str, Row]) -> str:
    contenders = list(dict.fromkeys(c for row in rows.values() for c in row))
    able = [row for row in rows.values() if row.get("onnxruntime") == "pass"]
    lines = [f"| {len(rows)} cases | {' | '.join(KINDS)} | of the {len(able)} that onnxruntime passes |",
             "|---" * (len(KINDS) + 2) + "|"]  # fmt: skip
    for contender in contenders:
        counts = Counter(kind_of(row[contender]) for row in rows.values() if contender in row)
        both = sum(row.get(contender) == "pass" for row in able)
        cells = " | ".join(str(counts[kind]) for kind in KINDS)
        lines.append(f"| {contender} | {cells} | {both} ({100 * both / max(len(able), 1):.1f} %) |")
    return "\n".join(lines) + "\n"
