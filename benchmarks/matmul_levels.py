"""What each level of a tiled matmul is worth, from naive to packed, against BLAS.

Writes results/MACHINE/matmul_levels.*

    naive       for i, j, k: c[i, j] += a[i, k] * b[k, j]
    cache       blocks of 64 x 64 x 64 that stay in L1 and L2; rows of c in vectors
    registers   and tiles of c held in registers over k (`batch_matmul`, b read in place)
    packed      and columns of b copied to a panel that is read in order (`batch_matmul`)
    prepacked   panels made at compile time, for a constant b (`dense`)
    BLAS        numpy

Each level runs in a process of its own, in interleaved rounds; results are compared with float64.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.common import arguments
from benchmarks.common.machine import machine_text, this_machine
from benchmarks.common.results import RESULTS, say, write_page
from benchmarks.common.rows import table
from benchmarks.measuring.processes import fresh

#: Level -> what it is.
LEVELS = {
    "naive": "three loops",
    "cache": "blocks for the caches, vectors",
    "registers": "and tiles in registers",
    "packed": "and b packed by the kernel",
    "prepacked": "b packed at compile time",
    "BLAS": "numpy",
}
_BLOCK = 64
_THREADS = ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
Run = tuple[Callable[[], Any], Callable[[], np.ndarray]]


def main() -> int:
    """Measure; 1 if a level computed something else."""
    args = _arguments()
    answers: dict[str, list[dict[str, Any]]] = {level: [] for level in LEVELS}
    one, module = dict.fromkeys(_THREADS, "1"), "benchmarks.matmul_levels"
    for number in range(args.rounds):
        say(f"round {number + 1} of {args.rounds}")
        for level, runs in answers.items():
            runs.append(fresh(module, "measured", level, args.size, args.seconds, env=one)[1])
    return _write(answers, args)


def _arguments() -> argparse.Namespace:
    size = (512, "rows and columns, a multiple of 64")
    parser = arguments.parser(__doc__, rounds=5, seconds=0.3, output=RESULTS, size=size)
    args = parser.parse_args()
    if args.size < _BLOCK or args.size % _BLOCK:
        parser.error(f"--size {args.size}: a multiple of {_BLOCK} is needed")
    return args


def measured(level: str, size: int, seconds: float) -> dict[str, Any]:
    """GFLOP/s at best, and the largest error relative to the sum of magnitudes, in this process."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype("float32") for _ in range(2))
    run, result = _numpy(a, b) if level == "BLAS" else _kernel(level, a, b)
    run()
    exact, magnitudes = a.astype("float64") @ b, np.abs(a).astype("float64") @ np.abs(b)
    error = float((np.abs(result() - exact) / magnitudes).max())
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        run()
        best = min(best, time.perf_counter() - start)
    return {"gflops": 2 * size**3 / best / 1e9, "error": error}


def _numpy(a: np.ndarray, b: np.ndarray) -> Run:
    out = np.empty_like(a)
    return lambda: np.matmul(a, b, out=out), lambda: out


def _kernel(level: str, a: np.ndarray, b: np.ndarray) -> Run:
    """A compiled level on these matrices."""
    import tvm
    from tvm_ext.core.layout import Layout
    from tvm_ext.core.machine import Machine

    machine, size, layouts = Machine.detect(None, 1), len(a), (Layout.plain(2), Layout.plain(2))
    if level in ("naive", "cache"):
        mod = _loops(size, machine.lanes if level == "cache" else 0)
    else:
        mod, layouts = _recipe(level, size, machine)
    function = tvm.compile(mod, target=machine.target()).jit()["main"]
    tensors = [tvm.runtime.tensor(how.pack(x)) for how, x in zip(layouts, (a, b), strict=True)]
    out = tvm.runtime.tensor(np.full_like(a, np.nan))
    return lambda: function(*tensors, out), out.numpy


def _loops(size: int, lanes: int) -> Any:
    """Three loops, or, given lanes, three blocked ones with vectors inside."""
    from tvm import te
    from tvm.s_tir import Schedule

    a, b = (te.placeholder((size, size), name=name) for name in "ab")
    axis = te.reduce_axis((0, size), name="k")
    out = te.compute((size, size), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis))
    sch = Schedule(te.create_prim_func([a, b, out]))
    if lanes:
        block = sch.get_sblock("compute")
        halves = [sch.split(loop, [None, _BLOCK]) for loop in sch.get_loops(block)]
        (i, ii), (j, ji), (k, ki) = halves
        sch.reorder(i, j, k, ii, ki, ji)
        sch.vectorize(sch.split(ji, [None, lanes])[1])
        sch.decompose_reduction(block, k)
    return sch.mod


def _recipe(level: str, size: int, machine: Any) -> tuple[Any, tuple[Any, ...]]:
    """(module, layouts of a and b) of the recipe's default for this level."""
    from tests.schedules.kernels import make_group, matched, scheduled
    from tvm import relax
    from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
    from tvm_ext.schedules.recipes.dense import Dense

    def product(a: Any, b: Any) -> Iterator[Any]:
        yield relax.op.matmul(a, b)

    constant = level == "prepacked"
    shapes, constants = [(size, size)] * 2, [1] if constant else []
    group = make_group("relax.matmul", shapes, product, constants)
    recipe = Dense() if constant else BatchMatmul()
    match = matched(recipe, group, machine)
    config = recipe.default(match, machine)
    if not constant:
        config["pack"] = level == "packed"
    layouts, mod = scheduled(recipe, match, config, machine, None)
    return mod, layouts.params


def _write(answers: dict[str, list[dict[str, Any]]], args: argparse.Namespace) -> int:
    """The two result files; 1 if an error is larger than rounding of so many terms explains."""
    best = {level: max(a["gflops"] for a in runs) for level, runs in answers.items()}
    error = {level: max(a["error"] for a in runs) for level, runs in answers.items()}
    right = {level: error[level] <= args.size * 2.0**-24 for level in LEVELS}
    cells = [("level", "what it adds", "GFLOP/s", "of BLAS", "largest error")]
    for level, meaning in LEVELS.items():
        share = f"{best[level] / best['BLAS']:.2f}"
        rates = (f"{best[level]:.1f}", share) if right[level] else ("wrong result", "")
        cells.append((level, meaning, *rates, f"{error[level]:.1e}"))
    machine, size = this_machine(), " x ".join([str(args.size)] * 3)
    how = f"float32, {size}, one thread; the best of {args.rounds} processes"
    about = f"{how}; errors relative to the sum of magnitudes."
    document = {"machine": machine, "size": args.size, "gflops": best, "error": error}
    parts = ["# matmul_levels", machine_text(machine), about, table(cells)]
    write_page(args.output, "matmul_levels", document, parts)
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
