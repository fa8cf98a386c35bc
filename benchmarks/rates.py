"""The machine, measured afresh in twenty processes, half of them under load: seconds, rates, and the choice by them.

    python benchmarks/rates.py                # a minute or two
    python benchmarks/rates.py --times 4

Under load two more processes compute on each core. Chosen are recipe and configuration of each kernel of the models.
Rates of narrow numbers are those of dot products, and of tiles where the CPU has them: none of them depends on others.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from typing import Any

from _common import RESULTS, Row, fresh, write_results

MODELS = ("resnet18", "mobilenet_v2")
LOAD = 2
NARROW = ("dot_int8", "dot_bf16", "tile_int8", "tile_bf16", "tile_l1", "tile_l2", "tile_l3")


def main() -> int:
    """Measure and write the page; 1 if a bar is missed."""
    args = _arguments()
    if args.inner:
        print(json.dumps(inner()))
        return 0
    alone = [measured() for _ in range(args.times // 2)]
    with_load = under_load(args.times - len(alone))
    rows = _rows(alone, with_load)
    write_results(RESULTS, "rates", rows, {"runs": alone, "under_load": with_load}, __doc__ or "")
    return 0 if all(row.met for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="measurements (default: 20)")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _rows(alone: list[dict[str, Any]], with_load: list[dict[str, Any]]) -> list[Row]:
    runs = [*alone, *with_load]
    choices = {json.dumps(run["choices"], sort_keys=True) for run in runs}
    narrow = {tuple((name, run["rates"].get(name, 0.0)) for name in NARROW) for run in runs}
    slowest = max(run["seconds"] for run in alone)
    return [
        Row("measuring the machine, the slowest of those without load", "1 s", f"{slowest:.2f} s", slowest <= 1.0),
        Row(f"different choices of {len(runs)} measurements, {len(with_load)} of them under load", "1",
            str(len(choices)), len(choices) == 1),
        Row(f"different rates of narrow numbers of {len(runs)} measurements", "1", str(len(narrow)), len(narrow) == 1),
    ]  # fmt: skip


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
        return fresh([sys.executable, __file__, "--inner"], env)[1]


def under_load(times: int) -> list[dict[str, Any]]:
    """Measurements while other processes compute."""
    busy = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(LOAD * (os.cpu_count() or 1))]
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
