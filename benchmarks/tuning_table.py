"""Measures the frozen table that `tuners.py` searches: five convolutions of ResNet-18, 2,000 points
of each.

    python benchmarks/tuning_table.py --minutes 10    # as often as it takes: it goes on
    python benchmarks/tuning_table.py --dry-run       # the entries and their sizes

Both recipes of a layer are an entry each: all legal points of the direct one, and of Winograd's a
grid without some choices of some knobs, so that every neighbour of a point is in the table too.
Points are measured in random order; the default is measured before and after each batch: a batch is
measured again if that took much longer than it can, since something else was on the machine then.
"""

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config, Match, Recipe
from tvm_ext.frontend.zoo.models import MODELS
from tvm_ext.passes.lowering.choose_recipes import matches
from tvm_ext.tuning.extract import Workload, workloads_of
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.task import RecipeTask
from tvm_ext.tuning.templates.space import ConfigSpace

from benchmarks.common import arguments
from benchmarks.common.machine import this_machine
from benchmarks.common.results import CACHE, say
from benchmarks.searching.table import TABLE, Entry, write_table

#: (output channels, input channels, kernel) of the layers; the first of stride 2, the others of 1.
LAYERS = ((64, 3, 7), (64, 64, 3), (128, 128, 3), (256, 256, 3), (512, 512, 3))
POINTS = 2000
RECIPES = ("conv2d_nchwc", "conv2d_winograd")
#: A batch around which the default takes so much longer than it can was disturbed by something else
#: on the machine.
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
    with LocalMeasurer(machine) as measurer:
        if not all(_measured(grid, measurer, args, end) for grid in grids):
            say(f"{args.minutes:g} minutes are over; start again to go on")
            return 3
    entries = [entry_of(grid, read_rows(args.rows, grid.task.name)) for grid in grids]
    write_table(args.output, this_machine(), entries)
    say(f"wrote {args.output}")
    return 0


def _measured(grid: Grid, measurer: LocalMeasurer, args: argparse.Namespace, end: float) -> bool:
    """Measure the batches of a grid that are missing, and add their rows to the file; False where
    the time ended before."""
    rows = read_rows(args.rows, grid.task.name)
    pending = list(missing_batches(grid, rows, args.batch))
    with args.rows.open("a") as file:
        while pending:
            if time.monotonic() > end:
                return False
            say(f"{grid.task.name}: {sum(map(len, pending))} to go")
            row = measure(grid, pending[0], measurer)
            if disturbed(row, rows):
                say("the default was too slow around this batch: measured again")
                continue
            rows.append(row)
            file.write("\n" + json.dumps(row))  # whatever the last line is
            file.flush()
            pending.pop(0)
    return True


def _arguments() -> argparse.Namespace:
    parser = arguments.parser(
        __doc__, points=(POINTS, "of a layer at most"),
        minutes=(math.inf, "stop after so many, or when done"),
        batch=(64, "points between two figures of the default"),
        dry_run=(False, "only say what would be measured"),
        rows=(CACHE / "tuning_table.jsonl", "what was measured so far"), output=TABLE,
    )  # fmt: skip
    args = parser.parse_args()
    if args.points < 1000:
        parser.error("--points: 1000 or more, since the direct recipe alone has up to 900")
    args.rows.parent.mkdir(parents=True, exist_ok=True)
    return args


def layer_title(layer: tuple[int, int, int], match: Match) -> str:
    """Of a layer, as entries call it."""
    (co, ci, kernel), (height, width) = layer, match.group.shape[2:]
    return f"{kernel}x{kernel} {ci}->{co}, {height}x{width}"


def grids_of(layer: tuple[int, int, int], points: int, machine: Machine) -> Iterator[Grid]:
    """The entries of a layer: the first recipe takes all it has, the second what is left of
    `points`."""
    options = options_of(layer, machine)
    for name in RECIPES:
        recipe, match = options[name]
        title = f"{layer_title(layer, match)}: {name}"
        grid = thinned(RecipeTask(match.group, recipe, match, machine, title), points)
        points -= len(grid.points)
        yield grid


def options_of(layer: tuple[int, int, int], machine: Machine) -> dict[str, tuple[Recipe, Match]]:
    """Recipes that take a layer of ResNet-18, by name, with what they read of it.

    Raises:
        RuntimeError: there is no such layer.
    """
    co, ci, kernel = layer
    strides = (2, 2) if ci == 3 else (1, 1)
    wanted = ("relax.nn.conv2d", (co, ci, kernel, kernel), strides)
    for work in _resnet18(machine):
        group = work.plan.match.group
        weight, own = group.operand(1), tuple(map(int, getattr(group.attrs, "strides", ())))
        if weight and wanted == (group.anchor, weight.shape, own):
            return {recipe.name: (recipe, match) for recipe, match in matches(group, machine)}
    raise RuntimeError(f"ResNet-18 has no layer {layer}")


@functools.cache
def _resnet18(machine: Machine) -> list[Workload]:
    return workloads_of(MODELS["resnet18"](), CompileOptions.of(), machine)


def thinned(task: RecipeTask, points: int) -> Grid:
    """The space without as many choices as bring it down to `points` legal points: one at a time,
    of the knob with the most choices the one nearest to its neighbour. The default stays."""
    default = task.default
    assert default is not None
    knobs = {name: list(choices) for name, choices in task.space.knobs.items()}
    legal = [
        task.space.at(i) for i in range(task.space.points) if task.space.legal(task.space.at(i))
    ]
    while len(legal) > points:
        name = max(knobs, key=lambda knob: len(knobs[knob]))
        pairs = itertools.pairwise(sorted(knobs[name]))
        gaps = {b: math.log2((1 + b) / (1 + a)) for a, b in pairs if b != default[name]}
        gone = min(gaps, key=lambda value: gaps[value])
        knobs[name].remove(gone)
        legal = [config for config in legal if config[name] != gone]
    space = ConfigSpace.of(knobs)
    kept = tuple(sorted(space.index(config) for config in legal))
    return Grid(task, space, kept, space.index(default))


def missing_batches(
    grid: Grid, rows: Sequence[Mapping[str, Any]], size: int
) -> Iterator[list[int]]:
    """Points without a row, in random order."""
    done = {point for row in rows for point, _ in row["points"]}
    order = map(int, np.random.default_rng(0).permutation(grid.points))
    left = [point for point in order if point not in done]
    for start in range(0, len(left), size):
        yield left[start : start + size]


def measure(grid: Grid, batch: Sequence[int], measurer: LocalMeasurer) -> dict[str, Any]:
    """One row: seconds of each point (null: failed), and of the default, the slower of before and
    after."""
    before, configs = _default(grid, measurer), [grid.space.at(point) for point in batch]
    seconds = {
        grid.space.index(measurement.config): measurement.cost if measurement.costs else None
        for measurement in measurer.measure(grid.task, configs, before)
    }
    slower, points = max(before, _default(grid, measurer)), [[p, seconds[p]] for p in batch]
    return {"entry": grid.task.name, "default": slower, "points": points}


def disturbed(row: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool:
    """Whether something else was on the machine while a row was measured, by the default of this
    and other rows."""
    least = min((other["default"] for other in others), default=math.inf)
    return bool(row["default"] > DISTURBED * least)


def _default(grid: Grid, measurer: LocalMeasurer) -> float:
    """Seconds of the default."""
    (measurement,) = measurer.measure(grid.task, [grid.space.at(grid.default)])
    if not measurement.costs:
        why = f"{measurement.error}: {measurement.detail}"
        raise RuntimeError(f"{grid.task.name}: its default fails: {why}")
    return measurement.cost


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
    task, points = grid.task, grid.points
    seconds = {point: cost and _rounded(cost) for row in rows for point, cost in row["points"]}
    configs: list[Config] = [grid.space.at(point) for point in points]
    knobs = {name: list(choices) for name, choices in grid.space.knobs.items()}
    prior = [_rounded(task.prior(config)) for config in configs]
    measured = [seconds[point] for point in points]
    about = task.name, task.recipe, task.version, knobs
    return Entry(*about, list(points), measured, prior, grid.default)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.5g}")


if __name__ == "__main__":
    sys.exit(main())
