"""Many cores, on paper: what is estimated of the zoo on described machines. Nothing is run. Writes
results/cores.*

By model and machine: kernels, those estimated to be faster with fewer threads, work rounded up to
whole tiles, units and rows (over the real, weighted by time), threads that nobody wakes, and the
estimate on 1, 4, 16, 64 threads.
"""

import pathlib
import sys
from dataclasses import asdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tvm_ext.inspection.estimates import Estimate

from benchmarks.common import arguments
from benchmarks.common.results import ALL_RESULTS, say, write_page
from benchmarks.common.rows import Row, exit_code, met_text, prose, table

MACHINES = ("cluster16-zen4", "cluster64-xeon")
MODELS = ("mlp", "resnet18", "resnet34", "resnet50", "mobilenet_v2", "bert")
#: Of threads whose estimates the table has.
COUNTS = (1, 4, 16, 64)
#: Most work rounded up, over the real.
MOST = 0.15
BAR = f"no kernel faster with fewer threads; at most {MOST:.0%} of work rounded up"
NOTE = prose("""
    Estimates of the cost model for machines that are described from published figures (`tvm-ext
    machine NAME` prints them); nothing was run. `tvm-ext profile MODEL --machine NAME
    --estimate` has the kernels of a row. Work is counted in vectors, and in tiles of a Winograd
    transform: what these have beyond the image is part of the algorithm, not of the sharing.""")
_HEAD = ("model", "machine", "kernels", "faster with fewer", "rounded up", "idle")


def main() -> int:
    """Estimate, compare; 1 if a bar was missed."""
    args = arguments.parser(
        __doc__, "cores.py --only resnet18", only=MODELS, what="models of the zoo",
        output=ALL_RESULTS, machines=(MACHINES, "described machines, by name or file"),
    ).parse_args()  # fmt: skip
    pairs = [(name, machine) for name in args.only for machine in args.machines]
    estimates = [(name, _estimate(name, machine)) for name, machine in pairs]
    rows = [_row(*pair) for pair in estimates]
    cells = [(*_HEAD, *map(str, COUNTS), "met"), *map(_cells, estimates, rows)]
    parts = ["# cores", f"Bar: {BAR}. Estimates in microseconds.", table(cells), NOTE]
    write_page(args.output, "cores", {"rows": [asdict(row) for row in rows]}, parts)
    return exit_code(rows)


def _estimate(name: str, machine: str) -> Estimate:
    say(f"{name} on {machine} ...")
    return tvm_ext.estimate(tvm_ext.zoo.MODELS[name](), machine=machine, records=None)


def _row(name: str, estimate: Estimate) -> Row:
    worse, figures = [row.name for row in estimate.worse], estimate.as_dict()
    names = ("threads", "seconds", "rounding", "idle", "worse", "fewer")
    details = {"kernels": len(estimate.rows), **{name: figures[name] for name in names}}
    text = f"{len(worse)} of {len(estimate.rows)}, {estimate.rounding:.1%}"
    met = not worse and estimate.rounding <= MOST
    return Row(f"{name} on {estimate.machine}", BAR, text, met, details)


def _cells(named: tuple[str, Estimate], row: Row) -> tuple[str, ...]:
    name, estimate = named
    by_count = estimate.fewer
    times = [f"{by_count[count] * 1e6:.0f}" if count in by_count else "-" for count in COUNTS]
    counts = str(len(estimate.rows)), str(len(estimate.worse))
    shares = f"{estimate.rounding:.1%}", f"{estimate.idle:.1%}"
    return name, estimate.machine, *counts, *shares, *times, met_text(row.met)


if __name__ == "__main__":
    sys.exit(main())
