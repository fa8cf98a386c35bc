"""How much slower the configuration of least estimate is than the best one measured: the regret of the cost model.

    python benchmarks/regret.py                          # the table of all machines with measured points
    python benchmarks/regret.py --measure --minutes 4    # measure points of ResNet-18's kernels on this machine

Points are records of candidates (all recipes that take a group, the best by estimate and others at random), measured
as a tuner measures them: alone, with cold weights. Each file of data/points/ is a log, named as the description of the
machine it was measured on (tvm_ext/rates/machines/), whose rates the estimates use.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib
import time
from collections.abc import Iterator

import numpy as np
from _common import say

from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.record import Record
from tvm_ext.core.record_book import machine_fields
from tvm_ext.frontend.zoo.models import MODELS
from tvm_ext.passes.choose_recipes import matches
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.task import RecipeTask

POINTS = pathlib.Path(__file__).resolve().parent / "data" / "points"
#: Of each task: so many of least estimate, and so many at random of those within `WITHIN` times the least.
BEST, RANDOM, WITHIN = 20, 30, 2.5


def tasks_of(model: str, machine: Machine) -> Iterator[RecipeTask]:
    for work in workloads_of(MODELS[model](), CompileOptions.of(), machine):
        group = work.plan.match.group
        for recipe, match in matches(group, machine):
            yield RecipeTask(group, recipe, match, machine)


def sample(task: RecipeTask, rng: np.random.Generator) -> list[dict]:
    configs = [c for c in (task.space.at(i) for i in range(task.space.points)) if task.space.legal(c)]
    configs.sort(key=task.prior)
    least = task.prior(configs[0])
    rest = [c for c in configs[BEST:] if task.prior(c) <= WITHIN * least]
    chosen = rng.permutation(len(rest))[:RANDOM]
    return configs[:BEST] + [rest[i] for i in chosen]


def measure(model: str, path: pathlib.Path, minutes: float, seed: int) -> None:
    machine, rng = Machine.detect(), np.random.default_rng(seed)
    end = time.monotonic() + 60 * minutes
    have = set()
    if path.exists():
        with gzip.open(path, "rt") as file:
            have = {(r.task, r.recipe, str(r.config)) for r in map(Record.from_row, file)}
    with LocalMeasurer(machine) as measurer, gzip.open(path, "at") as file:
        for task in tasks_of(model, machine):
            configs = [c for c in sample(task, rng) if (task.key, task.recipe, str(c)) not in have]
            if len(configs) <= RANDOM or time.monotonic() > end:
                continue
            for one in measurer.measure(task, configs):
                record = Record(
                    task.key,
                    task.recipe,
                    task.version,
                    one.config,
                    one.costs,
                    one.error,
                    one.detail,
                    one.check,
                    one.discarded,
                    machine_fields(machine),
                    "regret",
                    time.time(),
                    one.seconds,
                )
                file.write(record.to_row() + "\n")
            say(f"{task.name}: {len(configs)}")
            file.flush()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="resnet18")
    p.add_argument("--minutes", type=float, default=1)
    p.add_argument("--path", type=pathlib.Path)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    measure(a.model, a.path, a.minutes, a.seed)
