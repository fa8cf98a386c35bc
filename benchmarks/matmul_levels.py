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

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import RESULTS, fresh, markdown_table, say, write_text
from _machine import machine_text, this_machine

LEVELS = ("naive", "cache", "registers", "packed", "prepacked", "BLAS")
_MEANING = {
    "naive": "three loops",
    "cache": "blocks for the caches, vectors",
    "registers": "and tiles in registers",
    "packed": "and b packed by the kernel",
    "prepacked": "b packed at compile time",
    "BLAS": "numpy",
}
_BLOCK = 64


def main() -> int:
    """Measure; 1 if a level computed something else."""
    args = _arguments()
    if args.level:
        print(json.dumps(_measure(args.level, args.size, args.seconds)), flush=True)
        return 0
    threads = ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    answers: dict[str, list[dict[str, Any]]] = {level: [] for level in LEVELS}
    for number in range(args.rounds):
        say(f"round {number + 1} of {args.rounds}")
        for level in LEVELS:
            command = [sys.executable, __file__, "--level", level, "--size", str(args.size)]
            command += ["--seconds", str(args.seconds)]
            answers[level].append(fresh(command, dict.fromkeys(threads, "1"))[1])
    return _write(answers, args)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="rows and columns, a multiple of 64 (default: 512)")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes of each level (default: 5)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each process (default: 0.3)")
    parser.add_argument("--level", choices=LEVELS, help="measure one level in this process and print JSON")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    args = parser.parse_args()
    if args.size < _BLOCK or args.size % _BLOCK:
        parser.error(f"--size {args.size}: a multiple of {_BLOCK} is needed")
    return args


def _measure(level: str, size: int, seconds: float) -> dict[str, Any]:
    """GFLOP/s at best, and the largest error relative to the sum of magnitudes."""
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


Run = tuple[Callable[[], Any], Callable[[], np.ndarray]]


def _numpy(a: np.ndarray, b: np.ndarray) -> Run:
    out = np.empty_like(a)
    return lambda: np.matmul(a, b, out=out), lambda: out


def _kernel(level: str, a: np.ndarray, b: np.ndarray) -> Run:
    """A compiled level on these matrices."""
    import tvm

    from tvm_ext.core.layout import Layout
    from tvm_ext.core.machine import Machine

    machine, size = Machine.detect(None, 1), len(a)
    if level in ("naive", "cache"):
        mod, layouts = _loops(size, machine.lanes if level == "cache" else 0), (Layout.plain(2), Layout.plain(2))
    else:
        mod, layouts = _recipe(level, size, machine)
    function = tvm.compile(mod, target=machine.target()).jit()["main"]
    tensors = [tvm.runtime.tensor(layout.pack(x)) for layout, x in zip(layouts, (a, b), strict=True)]
    out = tvm.runtime.tensor(np.full_like(a, np.nan))
    return lambda: function(*tensors, out), out.numpy


def _loops(size: int, lanes: int) -> Any:
    """Three loops, or, given lanes, three blocked ones with vectors inside."""
    from tvm import te
    from tvm.s_tir import Schedule

    a, b = (te.placeholder((size, size), name=name) for name in "ab")
    axis = te.reduce_axis((0, size), name="k")
    sch = Schedule(
        te.create_prim_func([a, b, te.compute((size, size), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis))])
    )
    if lanes:
        block = sch.get_sblock("compute")
        (i, ii), (j, ji), (k, ki) = (sch.split(loop, [None, _BLOCK]) for loop in sch.get_loops(block))
        sch.reorder(i, j, k, ii, ki, ji)
        sch.vectorize(sch.split(ji, [None, lanes])[1])
        sch.decompose_reduction(block, k)
    return sch.mod


def _recipe(level: str, size: int, machine: Any) -> tuple[Any, tuple[Any, ...]]:
    """(module, layouts of a and b) of the recipe's default for this level."""
    from tvm.s_tir import Schedule

    from tvm_ext.core.layout import Layout
    from tvm_ext.core.recipe import Match
    from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
    from tvm_ext.schedules.recipes.dense import Dense

    recipe = Dense() if level == "prepacked" else BatchMatmul()
    match = recipe.match(_group(size, constant=level == "prepacked"), machine)
    assert isinstance(match, Match), match
    config = recipe.default(match, machine)
    if level != "prepacked":
        config["pack"] = level == "packed"
    layouts = recipe.layouts(match, config, [Layout.plain(2), Layout.plain(2)])
    sch = Schedule(recipe.compute(match, config, layouts))
    recipe.schedule(sch, match, config, machine)
    return sch.mod, layouts.params


def _group(size: int, constant: bool) -> Any:
    """matmul(a, b) as grouping writes it."""
    from tvm import relax

    from tvm_ext.core.group import CONSTANTS, GROUP, Group

    params = [relax.Var(name, relax.TensorType((size, size), "float32")) for name in "ab"]
    builder = relax.BlockBuilder()
    with builder.function("g", params):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(*params))
        builder.emit_func_output(result)
    function = builder.get()["g"]
    return Group("g", function.with_attr({GROUP: "relax.matmul", CONSTANTS: [1] if constant else []}))


def _write(answers: dict[str, list[dict[str, Any]]], args: argparse.Namespace) -> int:
    """The two result files; 1 if an error is larger than rounding of so many terms explains."""

    best = {level: max(a["gflops"] for a in found) for level, found in answers.items()}
    error = {level: max(a["error"] for a in found) for level, found in answers.items()}
    right = {level: error[level] <= args.size * 2.0**-24 for level in LEVELS}
    cells = [("level", "what it adds", "GFLOP/s", "of BLAS", "largest error")]
    for level in LEVELS:
        share = f"{best[level] / best['BLAS']:.2f}"
        figures = (f"{best[level]:.1f}", share) if right[level] else ("wrong result", "")
        cells.append((level, _MEANING[level], *figures, f"{error[level]:.1e}"))
    machine = this_machine()
    size = " x ".join([str(args.size)] * 3)
    how = f"float32, {size}, one thread; the best of {args.rounds} processes; errors relative to the sum of magnitudes."
    text = f"# matmul_levels\n\n{machine_text(machine)}\n\n{how}\n\n" + "\n".join(markdown_table(cells))
    write_text(args.output / "matmul_levels.md", text)
    document = {"machine": machine, "size": args.size, "gflops": best, "error": error}
    write_text(args.output / "matmul_levels.json", json.dumps(document, indent=1))
    print(text)
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
