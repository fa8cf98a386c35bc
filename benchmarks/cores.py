"""Many cores, on paper: what is estimated of the zoo on described machines. Nothing is run. Writes results/cores.*

By model and machine: kernels, those estimated to be faster with fewer threads, work rounded up to whole tiles,
units and rows (over the real, weighted by time), threads that nobody wakes, and the estimate on 1, 4, 16, 64 threads.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from dataclasses import asdict

from _common import ALL_RESULTS, Row, markdown_table, met_text, say, write_text

import tvm_ext
from tvm_ext.inspection.estimates import Estimate

MACHINES = ("cluster16-zen4", "cluster64-xeon")
MODELS = ("mlp", "resnet18", "resnet34", "resnet50", "mobilenet_v2", "bert")
#: Of threads whose estimates the table has.
COUNTS = (1, 4, 16, 64)
#: Most work rounded up, over the real.
MOST = 0.15
BAR = f"no kernel faster with fewer threads; at most {MOST:.0%} of work rounded up"
NOTE = (
    "Estimates of the cost model for machines that are described from published figures "
    "(`tvm-ext machine NAME` prints them); nothing was run. `tvm-ext profile MODEL --machine NAME --estimate` has the "
    "kernels of a row. Work is counted in vectors, and in tiles of a Winograd transform: what these have beyond the "
    "image is part of the algorithm, not of the sharing."
)
_TITLES = ("model", "machine", "kernels", "faster with fewer", "rounded up", "idle", *map(str, COUNTS), "met")


def main() -> int:
    """Estimate, compare; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/cores.py --only resnet18",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, help="models of the zoo (default: all)")
    parser.add_argument("--machines", nargs="+", default=MACHINES, help="described machines, by name or file")
    parser.add_argument("--output", type=pathlib.Path, default=ALL_RESULTS, help="folder of the two result files")
    args = parser.parse_args()
    made = [(name, _estimate(name, machine)) for name in args.only for machine in args.machines]
    rows = [_row(name, one) for name, one in made]
    cells = [_TITLES, *(_cells(name, one, row) for (name, one), row in zip(made, rows, strict=True))]
    markdown = "\n".join(
        ["# cores", "", f"Bar: {BAR}. Estimates in microseconds.", "", *markdown_table(cells), "", NOTE]
    )
    write_text(args.output / "cores.json", json.dumps({"rows": [asdict(row) for row in rows]}, indent=1))
    write_text(args.output / "cores.md", markdown)
    print(markdown)
    return 0 if all(row.met for row in rows) else 1


def _estimate(name: str, machine: str) -> Estimate:
    say(f"{name} on {machine} ...")
    return tvm_ext.estimate(tvm_ext.zoo.MODELS[name](), machine=machine, records=None)


def _row(name: str, made: Estimate) -> Row:
    worse, figures = [row.name for row in made.worse], made.as_dict()
    details = {key: figures[key] for key in ("threads", "seconds", "rounding", "idle", "worse", "fewer")}
    measured = f"{len(worse)} of {len(made.rows)}, {made.rounding:.1%}"
    what = f"{name} on {made.machine}"
    return Row(what, BAR, measured, not worse and made.rounding <= MOST, {"kernels": len(made.rows), **details})


def _cells(name: str, made: Estimate, row: Row) -> tuple[str, ...]:
    by_count = made.fewer
    times = [f"{by_count[count] * 1e6:.0f}" if count in by_count else "-" for count in COUNTS]
    shares = (f"{made.rounding:.1%}", f"{made.idle:.1%}")
    return name, made.machine, str(len(made.rows)), str(len(made.worse)), *shares, *times, met_text(row.met)


if __name__ == "__main__":
    sys.exit(main())
