"""How much slower the configuration of least estimate is than the best one measured: the regret of the cost model.

    python benchmarks/regret.py                          # the table, of all machines with measured points
    python benchmarks/regret.py --measure zen5 --minutes 4

Points are candidates of ResNet-18's kernels: all recipes that take a group, the best by estimate and others at random,
each measured as a tuner measures it, alone and with cold weights; `--measure` of a machine with points measures those
again that decide. A file of data/points/ is a tuning log, named as the
description of the machine it was measured on (tvm_ext/core/machines/); the points of zen4 are the frozen table of
`tuning_table.py`. Kernels of xeon-amx and zen4 were measured before weights were prefetched, and before candidates were
warmed up: one kernel stands there with times that differ by 1.7, which no model can foresee.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import pathlib
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from _common import ALL_RESULTS, markdown_table, say, write_text
from _tuning_table import read_table

from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import descriptions
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config, Match, Recipe
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import lines_of, machine_fields
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.frontend.zoo.models import MODELS
from tvm_ext.passes.lowering.choose_recipes import matches
from tvm_ext.schedules.blocked.kernel import BlockedMatch
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.task import RecipeTask
from tvm_ext.tuning.templates.space import ConfigSpace

POINTS = pathlib.Path(__file__).resolve().parent / "data" / "points"
#: Of each task: so many of least estimate, and so many at random of those within `WITHIN` times the least.
BEST, RANDOM, WITHIN = 16, 24, 2.5
#: Of each kernel, so many of least time and so many of least estimate are measured again.
FINAL = 6
#: Machines whose points are kernels that prefetch nothing.
WITHOUT_PREFETCH = ("zen4", "xeon-amx")


@dataclass(frozen=True)
class Point:
    """A measured candidate of a group."""

    recipe: Recipe
    match: Match
    config: Config
    seconds: float

    def estimate(self, machine: Machine, prefetched: bool) -> float:
        match = self.match
        if isinstance(match, BlockedMatch):
            match = replace(match, problem=replace(match.problem, prefetched=prefetched))
        return self.recipe.cost(match, self.config, machine)


def main() -> int:
    args = _arguments()
    if args.measure:
        measure(Machine.detect(), args.measure, args.minutes, args.seed)
    names = ["zen4", *(path.name.removesuffix(".json.gz") for path in sorted(POINTS.glob("*.json.gz")))]
    groups = {name: points_of(name) for name in names}
    header = ["points of", "kernels", "points", *(f"by rates of {name}" for name in names)]
    rows = [
        [name, str(len(groups[name])), str(sum(map(len, groups[name].values()))),
         *(f"{regret(groups[name], Machine.described(rates), name not in WITHOUT_PREFETCH):.3f}" for rates in names)]
        for name in names
    ]  # fmt: skip
    about = (__doc__ or "").split("\n\n")[2]
    text = "\n".join(["# Regret of the cost model", "", about.strip(), "", *markdown_table([header, *rows]), ""])
    print(text)
    write_text(ALL_RESULTS / "regret.md", text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = tuple(descriptions())
    parser.add_argument(
        "--measure", metavar="NAME", choices=choices, help="measure points of this machine, described so"
    )
    parser.add_argument("--minutes", type=float, default=4.0, help="stop after so many (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the random points (default: 0)")
    return parser.parse_args()


def regret(groups: Mapping[str, Sequence[Point]], machine: Machine, prefetched: bool) -> float:
    """Geometric mean over groups of the time of the point of least estimate over the least time."""
    ratios = []
    for points in groups.values():
        chosen = min(points, key=lambda point: point.estimate(machine, prefetched))
        ratios.append(chosen.seconds / min(point.seconds for point in points))
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def points_of(name: str) -> dict[str, list[Point]]:
    """Group -> its points; several times of one candidate are the least of them."""
    groups: dict[str, list[Point]] = defaultdict(list)
    if name == "zen4":
        for title, recipe, match, seconds in _of_table():
            groups[title] += [Point(recipe, match, config, s) for config, s in seconds]
        return groups
    machine = Machine.described(name)
    times: dict[tuple[TaskKey, str], dict[str, tuple[Config, float]]] = defaultdict(dict)
    for record in _records(POINTS / f"{name}.json.gz"):
        seen = times[record.task, record.recipe]
        known = seen.get(str(record.config), (record.config, math.inf))
        seen[str(record.config)] = (record.config, min(known[1], record.cost))
    for key, recipe, match in _kernels(machine):
        groups[key.short] += [Point(recipe, match, *one) for one in times[key, recipe.name].values()]
    return {title: points for title, points in groups.items() if points}


def _kernels(machine: Machine) -> Iterator[tuple[TaskKey, Recipe, Match]]:
    for work in workloads_of(MODELS["resnet18"](), CompileOptions.of(records=None), machine):
        for recipe, match in matches(work.plan.match.group, machine):
            yield work.key, recipe, match


def _of_table() -> Iterator[tuple[str, Recipe, Match, list[tuple[Config, float]]]]:
    """The frozen table of zen4: its entries are layers, each with a space of its own."""
    from tuning_table import LAYERS, options_of

    _, entries = read_table()
    for layer in LAYERS:
        options = options_of(layer, Machine.described("zen4"))
        for entry in entries:
            title, _, name = entry.name.rpartition(": ")
            recipe, match = options[name]
            height, width = match.group.shape[2:]
            if title == f"{layer[2]}x{layer[2]} {layer[1]}->{layer[0]}, {height}x{width}":
                space = ConfigSpace.of(entry.knobs)
                times = zip(entry.points, entry.seconds, strict=True)
                yield title, recipe, match, [(space.at(point), s) for point, s in times if s]


def _records(path: pathlib.Path) -> Iterator[Record]:
    text = gzip.decompress(path.read_bytes()).decode()
    plain = path.with_suffix("")  # a log as tvm-ext writes it, for the reader of logs
    plain.write_text(text)
    try:
        yield from (line.found for line in lines_of(plain) if isinstance(line.found, Record) and line.found.costs)
    finally:
        plain.unlink()


def sample(task: RecipeTask, rng: np.random.Generator) -> list[Config]:
    """The configurations of a task that are measured, in random order."""
    configs = [c for c in (task.space.at(i) for i in range(task.space.points)) if task.space.legal(c)]
    configs.sort(key=task.prior)
    rest = [c for c in configs[BEST:] if task.prior(c) <= WITHIN * task.prior(configs[0])]
    chosen = configs[:BEST] + [rest[i] for i in rng.permutation(len(rest))[:RANDOM]]
    return [chosen[i] for i in rng.permutation(len(chosen))]


def finalists(points: Sequence[Point], recipe: str, rates: Machine) -> list[Config]:
    """Of a kernel's points those of a recipe that are among the `FINAL` of least time or of least estimate.

    A virtual machine changes its speed for seconds: candidates that decide the regret are measured again, all as often.
    """
    ranked = [
        sorted(points, key=lambda point: point.seconds)[:FINAL],
        sorted(points, key=lambda point: point.estimate(rates, True))[:FINAL],
    ]
    configs = {str(point.config): point.config for half in ranked for point in half if point.recipe.name == recipe}
    return list(configs.values())


def measure(machine: Machine, name: str, minutes: float, seed: int) -> None:
    """Add points of all kernels to a log: of a sample, or, where it has points, of its finalists again and again while
    time is left."""
    rng, end = np.random.default_rng(seed), time.monotonic() + 60 * minutes
    path, known = POINTS / f"{name}.json.gz", {}
    if path.exists():
        known = points_of(name)
    with LocalMeasurer(machine) as measurer, gzip.open(path, "at") as file:
        kernels = list(_kernels(machine))
        for key, recipe, match in itertools.chain(kernels, itertools.cycle(kernels) if known else ()):
            task = RecipeTask(match.group, recipe, match, machine)
            again = finalists(known[key.short], recipe.name, Machine.described(name)) if known else None
            for one in measurer.measure(task, sample(task, rng) if again is None else again):
                record = Record(
                    key, recipe.name, recipe.version, one.config, one.costs, one.error, one.detail, one.check,
                    one.discarded, machine_fields(machine), "regret", round(time.time(), 3), round(one.seconds, 3),
                )  # fmt: skip
                file.write(record.to_row() + "\n")
            say(f"{task.name}: measured, {end - time.monotonic():.0f} s left")
            if time.monotonic() > end:
                return


if __name__ == "__main__":
    sys.exit(main())
