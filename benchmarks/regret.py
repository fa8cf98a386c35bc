"""How much slower the configuration of least estimate is than the best one measured: the regret of
the cost model.

    python benchmarks/regret.py                       # the table, of all machines with points
    python benchmarks/regret.py --measure zen5 --minutes 4

Points are candidates of ResNet-18's kernels: all recipes that take a group, the best by estimate
and others at random, each measured as a tuner measures it, alone and with cold weights; `--measure`
of a machine with points measures those again that decide. A file of data/points/ is a tuning log,
named as the description of the machine it was measured on (tvm_ext/core/machines/). Those of zen5
are of kernels whose reductions were not unrolled.

The second table fits the constants of the estimate (`CONSTANTS`) to the points of one machine, and
tests them on the points of each by that machine's own rates. A constant changes where that lowers
the regret by more than the standard error over the kernels.
"""

import contextlib
import gzip
import itertools
import math
import pathlib
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import descriptions
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.recipe import Config, Match, Recipe
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import lines_of, machine_fields
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.frontend.zoo.models import MODELS
from tvm_ext.passes.lowering.choose_recipes import matches
from tvm_ext.runtime.cpu import why_not_here
from tvm_ext.schedules.blocked import cost as blocked_cost
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.task import RecipeTask

from benchmarks.common import arguments
from benchmarks.common.results import ALL_RESULTS, FOLDER, say, write_text
from benchmarks.common.rows import filled, table

POINTS = FOLDER / "data" / "points"
#: Of each task: so many of least estimate, and so many at random of those within `WITHIN` times the
#: least.
BEST, RANDOM, WITHIN = 16, 24, 2.5
#: Of each kernel, so many of least time and so many of least estimate are measured again.
FINAL = 6
#: Constants of :mod:`tvm_ext.schedules.blocked.cost` that are no rates of a machine, and the values
#: that a fit tries.
CONSTANTS = {
    "_COLD": (0.25, 0.5, 0.75, 1.0), "_AGAIN": (0.5, 0.75, 1.0, 1.5),
    "_FOREIGN": (0.0, 0.25, 0.5, 0.75, 1.0), "_LATENCY": (3.5, 4.0, 4.5, 5.0, 6.0),
    "_OPERAND": (0.0, 0.04, 0.08, 0.12, 0.2), "_PARTIAL_SUM": (1.0, 1.5, 2.0, 3.0),
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A measured candidate of a group."""

    recipe: Recipe
    match: Match
    config: Config
    seconds: float

    def estimate(self, machine: Machine) -> float:
        return self.recipe.cost(self.match, self.config, machine)


Groups = Mapping[str, Sequence[Point]]
"""Group -> its points."""


def main() -> int:
    """Write the page; measure before, if asked to."""
    minutes, seed = (4.0, "stop after so many"), (0, "of the random points")
    parser = arguments.parser(__doc__, minutes=minutes, seed=seed)
    text, names = "measure points here, for the machine described so", tuple(descriptions())
    parser.add_argument("--measure", metavar="NAME", choices=names, help=text)
    args = parser.parse_args()
    if args.measure:
        if why := why_not_here(Machine.described(args.measure).as_dict()):
            parser.error(f"--measure {args.measure}: {why}")
        measure(args.measure, args.minutes, args.seed)
    names = [path.name.removesuffix(".json.gz") for path in sorted(POINTS.glob("*.json.gz"))]
    machines = {name: Machine.described(name) for name in names}
    points = {name: points_of(name) for name in names}
    rows = [["points of", "kernels", "points", *(f"by rates of {name}" for name in names)]]
    for name, groups in points.items():
        counts = str(len(groups)), str(sum(map(len, groups.values())))
        ratios = [regret(groups, m) for m in machines.values()]
        rows.append([name, *counts, *(f"{ratio:.3f}" for ratio in ratios)])
    fits = [["fitted to the points of", "constants that differ", *names]]
    for name, groups in points.items():
        changed = fitted(groups, machines[name])
        with constants(changed):
            own = [regret(points[n], machines[n]) for n in names]
        told = ", ".join(f"{constant[1:].lower()} {value:g}" for constant, value in changed.items())
        fits.append([name, told or "none", *(f"{ratio:.3f}" for ratio in own)])
    about = [filled(part) for part in (__doc__ or "").split("\n\n")[2:]]
    text = "\n\n".join(["# Regret of the cost model", about[0], table(rows), about[1], table(fits)])
    print(text)
    write_text(ALL_RESULTS / "regret.md", text)
    return 0


def regret(groups: Groups, machine: Machine) -> float:
    """Geometric mean over groups of the time of the point of least estimate over the least time."""
    return statistics.geometric_mean(ratios_of(groups, machine))


def ratios_of(groups: Groups, machine: Machine) -> list[float]:
    """Of each group: the time of the point of least estimate over the least time."""
    ratios = []
    for points in groups.values():
        chosen = min(points, key=lambda point: point.estimate(machine))
        ratios.append(chosen.seconds / min(point.seconds for point in points))
    return ratios


def fitted(groups: Groups, machine: Machine) -> dict[str, float]:
    """Values of :data:`CONSTANTS` that differ from those of the library, for the least regret on
    these points: one constant after the other, until none lowers it by more than its error."""
    best: dict[str, float] = {}
    least, lowered = ratios_of(groups, machine), True
    while lowered:
        lowered = False
        for constant, value in ((c, v) for c, values in CONSTANTS.items() for v in values):
            with constants({**best, constant: value}):
                ratios = ratios_of(groups, machine)
            if is_lower(ratios, least):
                best, least, lowered = {**best, constant: value}, ratios, True
    return best


def is_lower(ratios: Sequence[float], than: Sequence[float]) -> bool:
    """Whether the geometric mean is lower by more than the standard error of the difference: fewer
    kernels than that say nothing of other machines."""
    gains = [math.log(before / after) for after, before in zip(ratios, than, strict=True)]
    mean = statistics.fmean(gains)
    return mean > max(statistics.stdev(gains) / math.sqrt(len(gains)), 1e-6)


@contextlib.contextmanager
def constants(values: Mapping[str, float]) -> Iterator[None]:
    """The estimate with other constants; what it remembers is forgotten before and after."""
    before = {name: getattr(blocked_cost, name) for name in values}
    try:
        _with(values)
        yield
    finally:
        _with(before)


def _with(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        setattr(blocked_cost, name, value)
    for module in [m for name, m in sys.modules.items() if name.startswith("tvm_ext.schedules")]:
        for function in vars(module).values():
            getattr(function, "cache_clear", lambda: None)()


def points_of(name: str) -> Groups:
    """Group -> its points; several times of one candidate are the least of them."""
    groups: dict[str, list[Point]] = defaultdict(list)
    times: dict[tuple[TaskKey, str], dict[str, tuple[Config, float]]] = defaultdict(dict)
    for record in _records(POINTS / f"{name}.json.gz"):
        seen, text = times[record.task, record.recipe], str(record.config)
        known = seen.get(text, (record.config, math.inf))
        seen[text] = (record.config, min(known[1], record.cost))
    for key, recipe, match in _kernels(Machine.described(name)):
        seen = times[key, recipe.name]
        groups[key.short] += [Point(recipe, match, *measured) for measured in seen.values()]
    return {title: points for title, points in groups.items() if points}


def _kernels(machine: Machine) -> Iterator[tuple[TaskKey, Recipe, Match]]:
    options = CompileOptions.of(records=None)
    for work in workloads_of(MODELS["resnet18"](), options, machine):
        for recipe, match in matches(work.plan.match.group, machine):
            yield work.key, recipe, match


def _records(path: pathlib.Path) -> Iterator[Record]:
    """Measured records of a log, which is written to a file as the reader of logs takes it."""
    with tempfile.NamedTemporaryFile() as plain:
        plain.write(gzip.decompress(path.read_bytes()))
        plain.flush()
        for line in lines_of(plain.name):
            if isinstance(line.entry, Record) and line.entry.costs:
                yield line.entry


def sample(task: RecipeTask, rng: np.random.Generator) -> list[Config]:
    """The configurations of a task that are measured, in random order."""
    configs = [task.space.at(i) for i in range(task.space.points)]
    configs = sorted(filter(task.space.legal, configs), key=task.prior)
    most = WITHIN * task.prior(configs[0])
    rest = [config for config in configs[BEST:] if task.prior(config) <= most]
    chosen = configs[:BEST] + [rest[i] for i in rng.permutation(len(rest))[:RANDOM]]
    return [chosen[i] for i in rng.permutation(len(chosen))]


def finalists(points: Sequence[Point], recipe: str, rates: Machine) -> list[Config]:
    """Of a kernel's points those of a recipe that are among the `FINAL` of least time or of least
    estimate.

    A virtual machine changes its speed for seconds: candidates that decide the regret are measured
    again, all as often.
    """
    fastest = sorted(points, key=lambda point: point.seconds)[:FINAL]
    cheapest = sorted(points, key=lambda point: point.estimate(rates))[:FINAL]
    chosen = [point for point in (*fastest, *cheapest) if point.recipe.name == recipe]
    return list({str(point.config): point.config for point in chosen}.values())


def measure(name: str, minutes: float, seed: int) -> None:
    """Add points of all kernels of a described machine to its log: of a sample, or, where it has
    points, of its finalists again and again while time is left.
    """
    machine = Machine.described(name)
    rng, end = np.random.default_rng(seed), time.monotonic() + 60 * minutes
    path = POINTS / f"{name}.json.gz"
    known = points_of(name) if path.exists() else {}
    with LocalMeasurer(machine) as measurer, gzip.open(path, "at") as file:
        kernels = list(_kernels(machine))
        again = itertools.cycle(kernels) if known else ()
        for key, recipe, match in itertools.chain(kernels, again):
            task = RecipeTask(match.group, recipe, match, machine)
            if known:
                configs = finalists(known[key.short], recipe.name, machine)
            else:
                configs = sample(task, rng)
            for measurement in measurer.measure(task, configs):
                names = ("config", "costs", "error", "detail", "check", "discarded")
                result = (getattr(measurement, name) for name in names)
                about = "regret", round(time.time(), 3), round(measurement.seconds, 3)
                fields = machine_fields(machine)
                record = Record(key, recipe.name, recipe.version, *result, fields, *about)
                file.write(record.to_row() + "\n")
            say(f"{task.name}: measured, {end - time.monotonic():.0f} s left")
            if time.monotonic() > end:
                return


if __name__ == "__main__":
    sys.exit(main())
