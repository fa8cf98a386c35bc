"""The results of all machines beside each other: writes results/README.md from the JSON files that
are there.

    python benchmarks/machines.py     after results were added, or taken away; suite.py does so

A folder of results/ is a machine (`common/machine.py` makes its name). The suite has its table; so
has every other script whose rows state a bar, where two machines or more have its results.
"""

import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.asked.rows import ROWS
from benchmarks.common.machine import instructions
from benchmarks.common.results import ALL_RESULTS, read_json, write_text
from benchmarks.common.rows import filled, table
from benchmarks.pages import suite_page

Document = Mapping[str, Any]
SUITE = "suite"
#: What a row of a script has: `common.results.Row`.
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
        facts: dict[str, Any] = {}
        for document in self.documents.values():
            for part in (document, *_parts(document)):
                facts = {**part.get("machine", {}), **facts}
        return facts

    def suite(self) -> dict[str, dict[str, Any]]:
        """Rows of the suite by their keys."""
        return {row["key"]: row for row in self.documents.get(SUITE, {}).get("rows", ())}

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        """Rows of another script by what they measure; empty if it has none with a bar."""
        document = self.documents.get(name, {})
        rows = [row for part in (document, *_parts(document)) for row in part.get("rows") or ()]
        with_bars = all(isinstance(row, dict) and row.keys() >= _ROW for row in rows)
        return {row["what"]: row for row in rows} if with_bars else {}


def _parts(document: Document) -> list[Document]:
    """Parts of a document whose runs replace them one by one."""
    parts = document.get("parts", document).values()
    return [part for part in parts if isinstance(part, dict) and "machine" in part]


def read(folder: pathlib.Path = ALL_RESULTS) -> list[Results]:
    """The machines, by name."""
    results = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        documents = {path.stem: read_json(path) for path in sorted(place.glob("*.json"))}
        pages = tuple(path.name for path in sorted(place.glob("*.md")))
        results.append(Results(place.name, documents, pages))
    return results


def write(folder: pathlib.Path = ALL_RESULTS) -> pathlib.Path:
    """Write the page; its path."""
    path = folder / "README.md"
    write_text(path, markdown(read(folder)))
    return path


def markdown(machines: Sequence[Results]) -> str:
    """The page as Markdown: the machines, the suite, and rows that two machines or more have."""
    timed = [machine for machine in machines if machine.suite()]
    parts = ["# Results by machine", filled(ABOUT), table(_machine_cells(machines))]
    parts += ["## Suite", SUITE_NOTE, table(_suite_cells(timed))]
    for name in sorted({name for machine in machines for name in machine.documents} - {SUITE}):
        sides = [machine for machine in machines if machine.rows(name)]
        if len(sides) > 1:
            parts += [f"## {name}", table(_row_cells(sides, name))]
    return "\n\n".join(parts)


ABOUT = """
    `python benchmarks/machines.py` writes this page from the JSON files below it. A figure in bold
    misses its bar; what the profile says of it is on the machine's own page. A dash: not measured
    there."""
SUITE_NOTE = (
    "Time over onnxruntime's, unless the row says otherwise: our figure, by the rule of the "
    "[README](../README.md)."
)


def _machine_cells(machines: Sequence[Results]) -> Iterator[Sequence[str]]:
    """A row a fact, a column a machine."""
    facts = [_facts(machine) for machine in machines]
    yield "", *(f"`{machine.name}`" for machine in machines)
    for name in facts[0] if facts else ():
        yield name, *(of_machine[name] for of_machine in facts)


def _facts(results: Results) -> dict[str, str]:
    machine = results.machine
    sizes = [_size(machine.get(key)) for key in ("l1d", "l2", "l3")]
    pages = (f"[{name.removesuffix('.md')}]({results.name}/{name})" for name in results.pages)
    roofs, suite = machine.get("roofs", {}), results.suite()
    return {
        "CPU": str(machine.get("cpu", "-")),
        "microarchitecture": machine.get("processor") or "masked",
        "instructions": instructions(machine) if "features" in machine else "-",
        "cores; threads": f"{machine.get('cores', '-')}; {roofs.get('threads', '-')}",
        "L1d, L2 a core; L3": "{}, {}; {}".format(*sizes),
        "float32 multiply-adds, GFLOP/s": _rate(roofs.get("flops")),
        "a read from L2, GB/s": _rate(roofs.get("cache_bandwidth")),
        "a read of 17 MB; of 201 MB, GB/s": "; ".join(_read(suite, key) for key in _READS),
        "a read that no cache holds, GB/s": _rate(roofs.get("bandwidth")),
        "pages": ", ".join(pages),
    }


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
    suites = [machine.suite() for machine in machines]
    yield "what", "bar", *(f"`{machine.name}`" for machine in machines)
    for row in ROWS:
        plain = [suite.get(row.key) for suite in suites]
        if shown := next(filter(None, plain), None):
            bar = suite_page.bar_text({"bar": row.bar, "at_least": row.at_least})
            met = [values and row.met(values["value"]) for values in plain]
            texts = [suite_page.figure(values) if values else "-" for values in plain]
            yield suite_page.what(shown), bar, *map(_cell, texts, met)
    met = [[row.met(s[row.key]["value"]) for row in ROWS if row.key in s] for s in suites]
    yield "bars met", "", *(f"{sum(bars)} of {len(bars)}" for bars in met)


def _row_cells(machines: Sequence[Results], name: str) -> Iterator[Sequence[str]]:
    """Rows of a script, those that some machine lacks too."""
    tables = [machine.rows(name) for machine in machines]
    yield "what", "bar", *(f"`{machine.name}`" for machine in machines)
    for what in dict.fromkeys(what for rows in tables for what in rows):
        rows = [rows.get(what) for rows in tables]
        bars = dict.fromkeys(row["bar"] for row in rows if row)
        cells = (_cell(_short(row), row["met"]) if row else "-" for row in rows)
        yield what, " / ".join(bars), *cells


def _short(row: Mapping[str, Any]) -> str:
    """The figure, without what stands in brackets or behind it."""
    return re.split(r" \(|; |: ", str(row["measured"]), maxsplit=1)[0]


def _cell(text: str, met: bool | None) -> str:
    return f"**{text}**" if met is False and text != "-" else text


if __name__ == "__main__":
    print(write())
    sys.exit(0)
