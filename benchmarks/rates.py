"""The machine, measured afresh in twenty processes, half of them under load: seconds, rates, and
the choice by them.

    python benchmarks/rates.py                # a minute or two
    python benchmarks/rates.py --times 4

Under load two more processes compute on each core. Chosen are recipe and configuration of each
kernel of the models. Rates of narrow numbers are those of dot products, and of tiles where the CPU
has them: none of them depends on others.
"""

import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, write_results
from benchmarks.common.rows import Row
from benchmarks.measuring.processes import fresh

MODELS = ("resnet18", "mobilenet_v2")
LOAD = 2
NARROW = ("dot_int8", "dot_bf16", "tile_int8", "tile_bf16", "tile_l1", "tile_l2", "tile_l3")


def main() -> int:
    """Measure and write the page; 1 if a bar is missed."""
    times = arguments.parser(__doc__, times=(20, "measurements")).parse_args().times
    alone = [measured() for _ in range(times // 2)]
    with_load = under_load(times - len(alone))
    extra = {"runs": alone, "under_load": with_load}
    return write_results(RESULTS, "rates", _rows(alone, with_load), extra, __doc__ or "")


def _rows(alone: list[dict[str, Any]], with_load: list[dict[str, Any]]) -> list[Row]:
    runs = [*alone, *with_load]
    choices = {json.dumps(run["choices"], sort_keys=True) for run in runs}
    narrow = {tuple((name, run["rates"].get(name, 0.0)) for name in NARROW) for run in runs}
    slowest, count = max(run["seconds"] for run in alone), f"{len(runs)} measurements"
    what = "measuring the machine, the slowest of those without load"
    chosen = f"different choices of {count}, {len(with_load)} of them under load"
    rates = f"different rates of narrow numbers of {count}"
    return [
        Row(what, "1 s", f"{slowest:.2f} s", slowest <= 1.0),
        Row(chosen, "1", str(len(choices)), len(choices) == 1),
        Row(rates, "1", str(len(narrow)), len(narrow) == 1),
    ]


def inner() -> dict[str, Any]:
    """One measurement in a process of its own, and what it chooses."""
    from tvm_ext.core.machine import Machine
    from tvm_ext.core.options import CompileOptions
    from tvm_ext.frontend.zoo.models import MODELS as ZOO
    from tvm_ext.tuning.extract import workloads_of

    machine = Machine.detect()
    begin = time.perf_counter()
    machine = machine.measured(again=True)
    seconds = time.perf_counter() - begin
    options = CompileOptions.of(records=None)
    choices = {
        f"{name}: {work.key.short}": [work.plan.recipe.name, work.plan.config]
        for name in MODELS
        for work in workloads_of(ZOO[name](), options, machine)
    }
    return {"seconds": seconds, "rates": machine.rates.as_dict(), "choices": choices}


def measured() -> dict[str, Any]:
    """A measurement in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"TVM_EXT_CACHE": folder, "TVM_EXT_RATES": "measured"}
        return fresh("benchmarks.rates", "inner", env=env)[1]


def under_load(times: int) -> list[dict[str, Any]]:
    """Measurements while other processes compute."""
    count = LOAD * (os.cpu_count() or 1)
    busy = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        return [measured() for _ in range(times)]
    finally:
        for process in busy:
            process.kill()


def _compute() -> None:
    number = 1
    while True:
        number = number * 3 % 1000003


if __name__ == "__main__":
    sys.exit(main())
