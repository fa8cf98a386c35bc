"""The results of all machines beside each other: writes results/README.md from the JSON files that are there.

    python benchmarks/machines.py          after results were added, or taken away; suite.py does it by itself

A folder of results/ is a machine (`_machine.py` makes its name). The suite has its table; so has every other script
whose rows state a bar, where two machines or more have its results.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import _page
from _common import ALL_RESULTS, markdown_table, write_text
from _machine import instructions
from _rows import ROWS

Document = Mapping[str, Any]
SUITE = "suite"
#: What a row of a script has: `_common.Row`.
_ROW = {"what", "bar", "measured", "met"}


@dataclass(frozen=True)
class Results:
    """The JSON files of a machine's folder.

    Attributes:
        name: of the folder.
        documents: name of a script's results -> the document.
        pages: names of the Markdown files.
    """

    name: str
    documents: Mapping[str, Document]
    pages: tuple[str, ...]

    @property
    def machine(self) -> dict[str, Any]:
        """What the documents say of the machine together."""
        found: dict[str, Any] = {}
        for document in self.documents.values():
            parts = [document, *(part for part in _parts(document))]
            for facts in (part.get("machine", {}) for part in parts):
                found = {**facts, **found}
        return found

    def suite(self) -> dict[str, dict[str, Any]]:
        """Rows of the suite by their keys."""
        return {row["key"]: row for row in self.documents.get(SUITE, {}).get("rows", ())}

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        """Rows of another script by what they measure; empty if it has none with a bar."""
        document = self.documents.get(name, {})
        rows = [row for part in (document, *_parts(document)) for row in part.get("rows") or ()]
        return {row["what"]: row for row in rows} if all(isinstance(r, dict) and r.keys() >= _ROW for r in rows) else {}


def _parts(document: Document) -> list[Document]:
    """Parts of a document whose runs replace them one by one."""
    return [part for part in document.get("parts", document).values() if isinstance(part, dict) and "machine" in part]


def read(folder: pathlib.Path = ALL_RESULTS) -> list[Results]:
    """The machines, by name."""
    found = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        documents = {path.stem: json.loads(path.read_text()) for path in sorted(place.glob("*.json"))}
        found.append(Results(place.name, documents, tuple(path.name for path in sorted(place.glob("*.md")))))
    return found


def write(folder: pathlib.Path = ALL_RESULTS) -> pathlib.Path:
    """Write the page; its path."""
    path = folder / "README.md"
    write_text(path, markdown(read(folder)))
    return path


def markdown(machines: Sequence[Results]) -> str:
    """The page."""
    lines = ["# Results by machine", "", ABOUT, "", *markdown_table(list(_machine_cells(machines))), ""]
    timed = [one for one in machines if one.suite()]
    lines += ["## Suite", "", SUITE_NOTE, "", *markdown_table(list(_suite_cells(timed))), ""]
    for name in sorted({name for one in machines for name in one.documents} - {SUITE}):
        sides = [one for one in machines if one.rows(name)]
        if len(sides) > 1:
            lines += [f"## {name}", "", *markdown_table(list(_row_cells(sides, name))), ""]
    return "\n".join(lines)


ABOUT = """\
`python benchmarks/machines.py` writes this page from the JSON files below it. A figure in bold misses its bar; what the
profile says of it is on the machine's own page. A dash: not measured there."""
SUITE_NOTE = (
    "Time over onnxruntime's, unless the row says otherwise: our figure, by the rule of the [README](../README.md)."
)


def _machine_cells(machines: Sequence[Results]) -> Iterator[Sequence[str]]:
    """A row a fact, a column a machine."""
    facts = [_facts(one) for one in machines]
    yield "", *(f"`{one.name}`" for one in machines)
    for name in facts[0] if facts else ():
        yield name, *(one[name] for one in facts)


def _facts(results: Results) -> dict[str, str]:
    machine = results.machine
    sizes = [machine.get(key) for key in ("l1d", "l2", "l3")]
    roofs, suite = machine.get("roofs", {}), results.suite()
    return {
        "CPU": str(machine.get("cpu", "-")), "microarchitecture": machine.get("processor") or "masked",
        "instructions": instructions(machine) if "features" in machine else "-",
        "cores; threads": f"{machine.get('cores', '-')}; {roofs.get('threads', '-')}",
        "L1d, L2 a core; L3": "{}, {}; {}".format(*(_size(size) for size in sizes)),
        "float32 multiply-adds, GFLOP/s": _rate(roofs.get("flops")),
        "a read from L2, GB/s": _rate(roofs.get("cache_bandwidth")),
        "a read of 17 MB; of 201 MB, GB/s": "; ".join(_read(suite, key) for key in _READS),
        "a read that no cache holds, GB/s": _rate(roofs.get("bandwidth")),
        "pages": ", ".join(f"[{page.removesuffix('.md')}]({results.name}/{page})" for page in results.pages),
    }  # fmt: skip


#: Rows of the suite that time a plain read beside a layer.
_READS = ("dense-1x1024x4096", "dense-1x8192x6144")


def _read(suite: Mapping[str, Any], key: str) -> str:
    rounds = suite.get(key, {}).get("details", {}).get("rounds") or ()
    return _rate(max((read for _, read in rounds), default=None))


def _size(size: int | None) -> str:
    if size is None:
        return "-"
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:.1f}"


def _suite_cells(machines: Sequence[Results]) -> Iterator[Sequence[str]]:
    """The suite's rows, judged by the bars of today; last, how many are met."""
    found = [one.suite() for one in machines]
    yield "what", "bar", *(f"`{one.name}`" for one in machines)
    for row in ROWS:
        plain = [one.get(row.key) for one in found]
        shown = next((one for one in plain if one), None)
        if shown is not None:
            bar = {"bar": row.bar, "at_least": row.at_least}
            cells = [_cell(_page.figure(one), row.met(one["value"])) if one else "-" for one in plain]
            yield _page.what(shown), _page.bar_text(bar), *cells
    met = [[row.met(one[row.key]["value"]) for row in ROWS if row.key in one] for one in found]
    yield "bars met", "", *(f"{sum(one)} of {len(one)}" for one in met)


def _row_cells(machines: Sequence[Results], name: str) -> Iterator[Sequence[str]]:
    """Rows of a script, those that some machine lacks too."""
    found = [one.rows(name) for one in machines]
    yield "what", "bar", *(f"`{one.name}`" for one in machines)
    for what in dict.fromkeys(what for one in found for what in one):
        rows = [one.get(what) for one in found]
        bars = dict.fromkeys(row["bar"] for row in rows if row)
        yield what, " / ".join(bars), *(_cell(_short(row), row["met"]) if row else "-" for row in rows)


def _short(row: Mapping[str, Any]) -> str:
    """The figure, without what stands in brackets or behind it."""
    return re.split(r" \(|; |: ", str(row["measured"]), maxsplit=1)[0]


def _cell(text: str, met: bool | None) -> str:
    return f"**{text}**" if met is False and text != "-" else text


if __name__ == "__main__":
    print(write())
    sys.exit(0)
