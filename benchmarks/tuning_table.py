"""Measures the frozen table that `tuners.py` searches: five convolutions of ResNet-18, 2,000 points of each.

    python benchmarks/tuning_table.py --minutes 10     # as often as it takes: it goes on where it stopped
    python benchmarks/tuning_table.py --dry-run        # the entries and their sizes

Both recipes of a layer are an entry each: all legal points of the direct one, and of Winograd's a grid without some
choices of some knobs, so that every neighbour of a point is in the table too. Points are measured in random order; in
the default is measured before and after each batch: a batch is measured again if that took much longer than it can,
since something else was on the machine then.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _common import FOLDER, say
from _machine import this_machine
from _tuning_table import TABLE, Entry, write_table

from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config, Match, Recipe
from tvm_ext.frontend.zoo.models import MODELS
from tvm_ext.passes.lowering.choose_recipes import matches
from tvm_ext.tuning.extract import Workload, workloads_of
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.task import RecipeTask
from tvm_ext.tuning.templates.space import ConfigSpace

#: (output channels, input channels, kernel) of the layers; the first of stride 2, the others of stride 1.
LAYERS = ((64, 3, 7), (64, 64, 3), (128, 128, 3), (256, 256, 3), (512, 512, 3))
POINTS = 2000
RECIPES = ("conv2d_nchwc", "conv2d_winograd")
#: A batch around which the default takes so much longer than it can was disturbed by something else on the machine.
DISTURBED = 1.4


@dataclass(frozen=True)
class Grid:
    """A task, and the part of its space that is measured."""

    task: RecipeTask
    space: ConfigSpace
    points: tuple[int, ...]
    default: int


def main() -> int:
    """Measure what is missing; 3 if some still is."""
    args = _arguments()
    machine = Machine.detect()
    grids = [grid for layer in LAYERS for grid in grids_of(layer, args.points, machine)]
    for grid in grids:
        say(f"{grid.task.name}: {len(grid.points)} points of {grid.space.points}")
    if args.dry_run:
        return 0
    end = time.monotonic() + args.minutes * 60
    with LocalMeasurer(machine) as measurer, args.rows.open("a") as file:
        for grid in grids:
            rows = read_rows(args.rows, grid.task.name)
            pending = list(missing_batches(grid, rows, args.batch))
            while pending:
                if time.monotonic() > end:
                    say(f"{args.minutes:g} minutes are over; start again to go on")
                    return 3
                say(f"{grid.task.name}: {sum(map(len, pending))} to go")
                row = measure(grid, pending[0], measurer)
                if disturbed(row, rows):
                    say("the default was too slow around this batch: measured again")
                    continue
                rows.append(row)
                file.write("\n" + json.dumps(row))  # whatever the last line is
                file.flush()
                pending.pop(0)
    write_table(args.output, this_machine(), [entry_of(g, read_rows(args.rows, g.task.name)) for g in grids])
    say(f"wrote {args.output}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=POINTS, help=f"of a layer at most (default: {POINTS})")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many (default: when done)")
    parser.add_argument("--batch", type=int, default=64, help="points between two figures of the default (default: 64)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be measured")
    parser.add_argument("--rows", type=pathlib.Path, default=FOLDER / ".cache" / "tuning_table.jsonl",
                        help="what was measured so far")  # fmt: skip
    parser.add_argument("--output", type=pathlib.Path, default=TABLE, help="the table, once all is measured")
    args = parser.parse_args()
    if args.points < 1000:
        parser.error("--points: 1000 or more, since the direct recipe alone has up to 900")
    args.rows.parent.mkdir(parents=True, exist_ok=True)
    return args


def grids_of(layer: tuple[int, int, int], points: int, machine: Machine) -> Iterator[Grid]:
    """The entries of a layer: the first recipe takes all it has, the second what is left of `points`."""
    co, ci, kernel = layer
    options = options_of(layer, machine)
    for name in RECIPES:
        recipe, match = options[name]
        height, width = match.group.shape[2:]
        title = f"{kernel}x{kernel} {ci}->{co}, {height}x{width}: {name}"
        grid = thinned(RecipeTask(match.group, recipe, match, machine, title), points)
        points -= len(grid.points)
        yield grid


def options_of(layer: tuple[int, int, int], machine: Machine) -> dict[str, tuple[Recipe, Match]]:
    """Recipes that take a layer of ResNet-18, by name, with what they read of it."""
    co, ci, kernel = layer
    for work in _resnet18(machine):
        group, stride = work.plan.match.group, 2 if ci == 3 else 1
        shapes = ("relax.nn.conv2d", (co, ci, kernel, kernel), (stride, stride))
        weight = group.operand(1)
        if weight and shapes == (group.anchor, weight.shape, tuple(map(int, getattr(group.attrs, "strides", ())))):
            break
    else:
        raise RuntimeError(f"ResNet-18 has no layer {layer}")
    return {recipe.name: (recipe, match) for recipe, match in matches(group, machine)}


@functools.cache
def _resnet18(machine: Machine) -> list[Workload]:
    return workloads_of(MODELS["resnet18"](), CompileOptions.of(), machine)


def thinned(task: RecipeTask, points: int) -> Grid:
    """The space without as many choices as bring it down to `points` legal points: one at a time, of the knob with the
    most choices the one nearest to its neighbour. The default stays."""
    assert task.default is not None
    knobs = {name: list(choices) for name, choices in task.space.knobs.items()}
    legal = [task.space.at(i) for i in range(task.space.points) if task.space.legal(task.space.at(i))]
    while len(legal) > points:
        name = max(knobs, key=lambda knob: len(knobs[knob]))
        values = sorted(knobs[name])
        gaps = {b: math.log2((1 + b) / (1 + a)) for a, b in itertools.pairwise(values) if b != task.default[name]}
        gone = min(gaps, key=lambda value: gaps[value])
        knobs[name].remove(gone)
        legal = [config for config in legal if config[name] != gone]
    space = ConfigSpace.of(knobs)
    return Grid(task, space, tuple(sorted(space.index(config) for config in legal)), space.index(task.default))


def missing_batches(grid: Grid, rows: Sequence[Mapping[str, Any]], size: int) -> Iterator[list[int]]:
    """Points without a row, in random order."""
    done = {point for row in rows for point, _ in row["points"]}
    order = [int(p) for p in np.random.default_rng(0).permutation(grid.points) if int(p) not in done]
    for start in range(0, len(order), size):
        yield order[start : start + size]


def measure(grid: Grid, batch: Sequence[int], measurer: LocalMeasurer) -> dict[str, Any]:
    """One row: seconds of each point (null: failed), and of the default, the slower of before and after."""
    before = _default(grid, measurer)
    found: dict[int, float | None] = {}
    for one in measurer.measure(grid.task, [grid.space.at(point) for point in batch], before):
        found[grid.space.index(one.config)] = one.cost if one.costs else None
    slower = max(before, _default(grid, measurer))
    return {"entry": grid.task.name, "default": slower, "points": [[p, found[p]] for p in batch]}


def disturbed(row: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool:
    """Whether something else was on the machine while a row was measured, by the default of this and other rows."""
    return bool(row["default"] > DISTURBED * min((other["default"] for other in others), default=math.inf))


def _default(grid: Grid, measurer: LocalMeasurer) -> float:
    """Seconds of the default."""
    (found,) = measurer.measure(grid.task, [grid.space.at(grid.default)])
    if not found.costs:
        raise RuntimeError(f"{grid.task.name}: its default fails: {found.error}: {found.detail}")
    return found.cost


def read_rows(path: pathlib.Path, entry: str) -> list[dict[str, Any]]:
    """Rows of an entry; a last line that was cut off is left out."""
    rows = []
    for line in filter(None, path.read_text().splitlines() if path.exists() else ()):
        try:
            rows.append(json.loads(line))
        except ValueError:
            say(f"{path}: a line that is cut off: its points are measured again")
    return [row for row in rows if row["entry"] == entry]


def entry_of(grid: Grid, rows: Sequence[Mapping[str, Any]]) -> Entry:
    """The entry, of all its rows."""
    seconds = {point: cost and _rounded(cost) for row in rows for point, cost in row["points"]}
    configs: list[Config] = [grid.space.at(point) for point in grid.points]
    return Entry(
        grid.task.name, grid.task.recipe, grid.task.version, {k: list(v) for k, v in grid.space.knobs.items()},
        list(grid.points), [seconds[point] for point in grid.points],
        [_rounded(grid.task.prior(config)) for config in configs], grid.default,
    )  # fmt: skip


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.5g}")


if __name__ == "__main__":
    sys.exit(main())
