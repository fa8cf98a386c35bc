"""Planted bugs: does bisect name each one exactly, and in how many compiles? Writes results/MACHINE/bisect.*

Each bug breaks a pass, a recipe, a weight, a record, or a back end's lowering or driver, in a small model that uses it
(tests/verification/bisect/planted.py). It is searched by its kind, and with every kind tried in turn; and the kernels
are compared with onnxruntime layer by layer, where the program can be made and run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from _common import RESULTS, markdown_table, say, write_text
from _machine import machine_text, this_machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.verification.bisect.planted import BUGS, Bug
from tvm_ext.driver.compile import compile_model
from tvm_ext.verification.bisect import Bisection, bisect
from tvm_ext.verification.layer_check import check_layers


def main() -> int:
    """Search; 1 if a culprit was not named exactly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/planted_bugs.py --only packing driver",
    )  # fmt: skip
    names = [bug.name for bug in BUGS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="bugs (default: all)")
    args = parser.parse_args()
    rows = [_search(bug) for bug in BUGS if bug.name in args.only]
    _write(rows)
    return 0 if all(row["by_kind"]["exact"] and row["in_turn"]["exact"] for row in rows) else 1


def _search(bug: Bug) -> dict[str, Any]:
    say(f"{bug.name}: {bug.what} ...")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        proto, options, culprit = bug.prepared(Path(folder))
        right = bisect(proto, **options).ok
        bug.plant(patch)
        found = {"by_kind": bisect(proto, bug.kind, **options), "in_turn": bisect(proto, **options)}
        made = {key: _plain(one, culprit, right, folder) for key, one in found.items()}
        return {"name": bug.name, "what": bug.what, "kind": bug.kind, "culprit": bug.culprit, **made,
                "layers": _first_bad(proto, options)}  # fmt: skip


def _plain(found: Bisection, culprit: str, right: bool, folder: str) -> dict[str, Any]:
    names = [one.name for one in found.culprits]
    return {
        "exact": right and names == [culprit], "named": [name.replace(f"{folder}/", "") for name in names],
        "nodes": [node for one in found.culprits for node in one.nodes], "compiles": len(found.trials),
        "seconds": round(sum(one.seconds for one in found.trials), 1), "error": str(found.trials[0].error),
    }  # fmt: skip


def _first_bad(proto: Any, options: dict[str, Any]) -> str:
    """The first kernel that is wrong by itself; or why there is none."""
    try:
        report = check_layers(compile_model(proto, cache=False, **options), proto)
    except Exception as error:
        return f"no program: {type(error).__name__}"
    first = report.first_bad
    return f"{first.value} ({first.recipe})" if first is not None else "none"


def _write(rows: list[dict[str, Any]]) -> None:
    machine = this_machine()
    cells = [("planted bug", "kind", "named by kind", "compiles", "in turn", "compiles", "seconds", "first bad value")]
    cells += [
        (
            r["what"], r["kind"], _named(r["by_kind"]), str(r["by_kind"]["compiles"]), _named(r["in_turn"]),
            str(r["in_turn"]["compiles"]), f"{r['in_turn']['seconds']:.0f}", r["layers"],
        )
        for r in rows
    ]  # fmt: skip
    exact = sum(r["by_kind"]["exact"] and r["in_turn"]["exact"] for r in rows)
    found = (
        f"{exact} of {len(rows)} are named exactly, by their kind and with every kind tried in turn (bar: all of 12 or "
        "more). A compile with nothing planted finds nothing wrong."
    )
    notes = (
        "The bugs are in `tests/verification/bisect/planted.py`. The last column is what a comparison layer by layer "
        "names. Seconds are those of small models on one thread, on a machine that did other things too."
    )
    text = "\n".join(["# Planted bugs", "", machine_text(machine), "", found, "", *markdown_table(cells), "", notes])
    write_text(RESULTS / "bisect.md", text)
    write_text(RESULTS / "bisect.json", json.dumps({"machine": machine, "rows": rows}, indent=1))
    print(text)


def _named(found: dict[str, Any]) -> str:
    return ", ".join(found["named"]) + ("" if found["exact"] else " (WRONG)")


if __name__ == "__main__":
    sys.exit(main())
