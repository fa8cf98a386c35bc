"""How many trials each tuner needs to come within 5 % of the best point of a frozen table.

Writes results/MACHINE/tuners.*

    python benchmarks/tuners.py                        # the table in data/, 20 seeds; some minutes
    python benchmarks/tuners.py --only winograd --seeds 5 --tuners random xgb

No time is measured here: a trial looks up what `tuning_table.py` measured. Without the recipe's estimate xgb knows the
knobs' values and no more, so it is compared with random on equal terms; "+ estimate" is what a session does: the
estimate is a feature and seeds the first batch, and the search begins at the default configuration.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from _chart import Bar, chart
from _common import RESULTS, markdown_table, say, write_text
from _tuning_table import TABLE, Entry, TableTask, read_table

from tvm_ext.tuning.tuners import TUNERS, make_tuner

#: Part of the best speed that is looked for, and xgb's trials over random's that are allowed.
TARGET, BAR = 0.95, 0.5
#: Name of a column -> tuner, and whether it sees the estimate.
COLUMNS = {
    "random": ("random", False), "grid": ("grid", False), "ga": ("ga", False), "beam": ("beam", False),
    "xgb": ("xgb", False), "ga + estimate": ("ga", True), "beam + estimate": ("beam", True),
    "xgb + estimate": ("xgb", True),
}  # fmt: skip


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
    jobs = [(entry, name, seed, args.batch) for entry in entries for name in columns for seed in range(args.seeds)]
    say(f"{len(jobs)} searches in {len(entries)} tables")
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        found = pool.starmap(trials_needed, jobs, chunksize=1)
    needed: dict[str, dict[str, list[int]]] = {entry.name: {name: [] for name in columns} for entry in entries}
    for (entry, name, _, _), trials in zip(jobs, found, strict=True):
        needed[entry.name][name].append(trials)
    return write(entries, needed, machine, args)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, default=TABLE, help="a table of tuning_table.py")
    parser.add_argument("--tuners", nargs="+", choices=TUNERS, default=list(TUNERS), help="default: all")
    parser.add_argument("--only", nargs="+", default=[], help="entries whose name has these words")
    parser.add_argument("--seeds", type=int, default=20, help="searches of each tuner in each entry (default: 20)")
    parser.add_argument("--batch", type=int, default=16, help="points proposed at once (default: 16, a session's)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="default: the cores")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the result files")
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
    entries: Sequence[Entry], needed: dict[str, dict[str, list[int]]], machine: dict[str, Any], args: argparse.Namespace
) -> int:
    """Write tuners.json, .md and .svg; 1 if the bar is missed."""
    columns = list(next(iter(needed.values())))
    medians = {entry: {name: statistics.median(runs[name]) for name in columns} for entry, runs in needed.items()}
    cells = [("table", "points", "within 5 %", *columns, *(["xgb / random"] if _judged(columns) else []))]
    for entry in entries:
        row = medians[entry.name]
        good = sum(s is not None and s <= entry.best / TARGET for s in entry.seconds)
        ratio = [f"{row['xgb'] / row['random']:.2f}"] if _judged(columns) else []
        cells.append((entry.name, str(len(entry.points)), str(good), *(f"{row[n]:g}" for n in columns), *ratio))
    verdict = _verdict(medians) if _judged(columns) else math.nan
    text = "\n".join([
        "# Tuners", "",
        f"Trials until {TARGET:.0%} of the best speed of the table: median over {args.seeds} seeds, "
        f"{args.batch} points at once. Measured on: {machine.get('cpu', 'unknown')}.", "",
        *markdown_table(cells), "",
        f"xgb / random, geometric mean over the tables: **{verdict:.2f}** (bar: {BAR} or less).", "",
        *(["![trials of xgb / trials of random, a bar a table](tuners.svg)", ""] if _judged(columns) else []), _NOTES,
    ])  # fmt: skip
    write_text(args.output / "tuners.md", text)
    document = {"machine": machine, "target": TARGET, "batch": args.batch, "trials": needed, "xgb_over_random": verdict}
    write_text(args.output / "tuners.json", json.dumps(document, indent=1))
    if _judged(columns):
        write_text(args.output / "tuners.svg", _picture(medians, args.seeds))
    print(text)
    return int(verdict > BAR)


def _judged(columns: Sequence[str]) -> bool:
    return "xgb" in columns and "random" in columns


def _verdict(medians: dict[str, dict[str, float]]) -> float:
    return statistics.geometric_mean(row["xgb"] / row["random"] for row in medians.values())


def _picture(medians: dict[str, dict[str, float]], seeds: int) -> str:
    peers = [name for name in ("xgb + estimate", "ga", "beam") if name in next(iter(medians.values()))]
    bars = [
        Bar(entry, row["xgb"] / row["random"], BAR, peers={name: row[name] / row["random"] for name in peers})
        for entry, row in medians.items()
    ]
    about = (
        f"trials until {TARGET:.0%} of the best speed of a frozen table, median over {seeds} seeds; shorter is better"
    )
    return chart("Trials of xgb / trials of random", about, bars)


_NOTES = """Without "+ estimate" a tuner sees the values of the knobs and the seconds of what it tried, as random does:
no analytic estimate, and no default to begin at. "+ estimate" is what a tuning session does. A table that random solves
in few trials cannot be solved in half of them: the first points of xgb are random. xgb takes 8 points at a time until
it has some results, the others as many as there are to be had."""


if __name__ == "__main__":
    sys.exit(main())
