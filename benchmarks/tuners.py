"""How many trials each tuner needs to come within 5 % of the best point of a frozen table.

Writes results/MACHINE/tuners.*

    python benchmarks/tuners.py                        # the table in data/, 20 seeds; some minutes
    python benchmarks/tuners.py --only winograd --seeds 5 --tuners random xgb

No time is measured here: a trial looks up what `tuning_table.py` measured. Without the recipe's
estimate xgb knows the knobs' values and no more, so it is compared with random on equal terms; "+
estimate" is what a session does: the estimate is a feature and seeds the first batch, and the
search begins at the default configuration.
"""

import argparse
import math
import multiprocessing
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tvm_ext.core.machine import available_cores
from tvm_ext.tuning.tuners import TUNERS, make_tuner

from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_page, write_text
from benchmarks.common.rows import filled, table
from benchmarks.pages.charts import Bar, bars_chart, svg_file
from benchmarks.searching.table import TABLE, Entry, TableTask, read_table

#: Part of the best speed that is looked for, and xgb's trials over random's that are allowed.
TARGET, BAR = 0.95, 0.5
#: Name of a column -> tuner, and whether it sees the estimate.
COLUMNS = {
    **{name: (name, False) for name in ("random", "grid", "ga", "beam", "xgb")},
    **{f"{name} + estimate": (name, True) for name in ("ga", "beam", "xgb")},
}
Trials = Mapping[str, Mapping[str, list[int]]]
"""Entry -> column -> trials of each seed."""


def main() -> int:
    """Compare; 1 if the bar is missed, 2 without a table."""
    args = _arguments()
    try:
        machine, entries = read_table(args.table)
    except FileNotFoundError as error:
        say(str(error))
        return 2
    entries = [entry for entry in entries if all(word in entry.name for word in args.only)]
    columns = [name for name, (tuner, _) in COLUMNS.items() if tuner in args.tuners]
    pairs = [(entry, name) for entry in entries for name in columns]
    jobs = [(*pair, seed, args.batch) for pair in pairs for seed in range(args.seeds)]
    say(f"{len(jobs)} searches in {len(entries)} tables")
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        counts = pool.starmap(trials_needed, jobs, chunksize=1)
    needed: dict[str, dict[str, list[int]]] = {entry.name: {} for entry in entries}
    for (entry, name, _, _), trials in zip(jobs, counts, strict=True):
        needed[entry.name].setdefault(name, []).append(trials)
    return write(entries, needed, machine, args)


def _arguments() -> argparse.Namespace:
    parser = arguments.parser(
        __doc__, output=RESULTS, table=(TABLE, "a table of tuning_table.py"),
        seeds=(20, "searches of each tuner in each entry"),
        batch=(16, "points proposed at once, as a session does"),
        processes=(available_cores(), "that search"),
    )  # fmt: skip
    names = {"nargs": "+", "choices": TUNERS, "default": list(TUNERS)}
    parser.add_argument("--tuners", **names, help="default: all")
    text = "entries whose name has these words"
    parser.add_argument("--only", nargs="+", default=[], help=text)
    args = parser.parse_args()
    if args.seeds < 1 or args.batch < 1:
        parser.error("--seeds and --batch are 1 or more")
    return args


def trials_needed(entry: Entry, column: str, seed: int, batch: int) -> int:
    """Trials until the first point of `TARGET` of the best speed, that one included."""
    name, estimate = COLUMNS[column]
    task = TableTask(entry, estimate)
    tuner, trials = make_tuner(name, task, seed), 0
    while configs := tuner.propose(batch):
        results = [(config, task.seconds(config)) for config in configs]
        for _, seconds in results:
            trials += 1
            if seconds <= entry.best / TARGET:
                return trials
        tuner.update(results)
    raise RuntimeError(f"{entry.name}: {column} used up the space without its best point")


def write(
    entries: Sequence[Entry], needed: Trials, machine: Mapping[str, Any], args: argparse.Namespace
) -> int:
    """Write tuners.json, .md and .svg; 1 if the bar is missed."""
    columns = list(next(iter(needed.values())))
    medians = {
        entry: {name: statistics.median(runs[name]) for name in columns}
        for entry, runs in needed.items()
    }
    judged = "xgb" in columns and "random" in columns
    ratios = {entry: row["xgb"] / row["random"] for entry, row in medians.items() if judged}
    verdict = statistics.geometric_mean(ratios.values()) if judged else math.nan
    cells = [("table", "points", "within 5 %", *columns, *(["xgb / random"] if judged else []))]
    for entry in entries:
        good = sum(s is not None and s <= entry.best / TARGET for s in entry.seconds)
        trials = (f"{medians[entry.name][name]:g}" for name in columns)
        ratio = [f"{ratios[entry.name]:.2f}"] if judged else []
        cells.append((entry.name, str(len(entry.points)), str(good), *trials, *ratio))
    how = f"median over {args.seeds} seeds, {args.batch} points at once"
    cpu = f"Measured on: {machine.get('cpu', 'unknown')}."
    image = "![trials of xgb / trials of random, a bar a table](tuners.svg)" if judged else ""
    parts = [
        "# Tuners", f"Trials until {TARGET:.0%} of the best speed of the table: {how}. {cpu}",
        table(cells), f"xgb / random, geometric mean over the tables: **{verdict:.2f}** "
        f"(bar: {BAR} or less).", image, _NOTES,
    ]  # fmt: skip
    about = {"machine": machine, "target": TARGET, "batch": args.batch}
    document = {**about, "trials": needed, "xgb_over_random": verdict}
    if judged:
        write_text(args.output / "tuners.svg", _picture(medians, args.seeds))
    write_page(args.output, "tuners", document, parts)
    return int(verdict > BAR)


def _picture(medians: Mapping[str, Mapping[str, float]], seeds: int) -> str:
    columns = next(iter(medians.values()))
    names = [name for name in ("xgb + estimate", "ga", "beam") if name in columns]
    bars = []
    for entry, row in medians.items():
        peers = {name: row[name] / row["random"] for name in names}
        bars.append(Bar(entry, row["xgb"] / row["random"], BAR, peers=peers))
    what = f"trials until {TARGET:.0%} of the best speed of a frozen table"
    about = f"{what}, median over {seeds} seeds; shorter is better"
    return svg_file(bars_chart("Trials of xgb / trials of random", about, bars))


_NOTES = filled("""
    Without "+ estimate" a tuner sees the values of the knobs and the seconds of what it tried, as
    random does: no analytic estimate, and no default to begin at. "+ estimate" is what a tuning
    session does. A table that random solves in few trials cannot be solved in half of them: the
    first points of xgb are random. xgb takes 8 points at a time until it has some results, the
    others as many as there are to be had.""")


if __name__ == "__main__":
    sys.exit(main())
