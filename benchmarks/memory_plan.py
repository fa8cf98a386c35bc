"""Memory that programs work in, over the least that any plan needs. Writes results/MACHINE/memory_plan.*"""

from __future__ import annotations

import argparse
import pathlib
import sys

from _common import RESULTS, Row, say, write_results

import tvm_ext

#: Of arena and pools together, over the most bytes in use in one launch.
MOST = 1.15
#: Models of the zoo with a bar; the others are told.
WITH_BAR = ("resnet18", "resnet50", "mobilenet_v2")
MODELS = (*WITH_BAR, "bert", "mlp")


def main() -> int:
    """Compile, compare; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/memory_plan.py --only resnet18",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, help="models of the zoo (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    args = parser.parse_args()
    rows = [_row(name, args.threads) for name in args.only]
    note = (
        "Activations and workspace of kernels lie in one arena; what a thread needs for itself, up to 256 KiB, "
        "it takes from a pool of its own, which keeps what the largest kernel took. Both are counted. The lower "
        "bound is the most that is in use in one launch. Inputs, weights and outputs are the caller's and not counted."
    )
    write_results(args.output, "memory_plan", rows, {"threads": args.threads}, note)
    return 0 if all(row.met for row in rows) else 1


def _row(name: str, threads: int) -> Row:
    say(f"{name} ...")
    plan = tvm_ext.memory_plan(tvm_ext.zoo.MODELS[name](), threads=threads, records=None)
    bar = name in WITH_BAR
    measured = (
        f"{plan.ratio:.3f}: {plan.nbytes / 1e6:.2f} MB of {plan.lower_bound / 1e6:.2f} MB, "
        f"{plan.no_reuse / 1e6:.2f} MB without reuse"
    )
    details = {"bytes": plan.nbytes, "lower_bound": plan.lower_bound, "no_reuse": plan.no_reuse, "ratio": plan.ratio,
               "arena_bytes": plan.arena_bytes, "launches": len(plan.launches)}  # fmt: skip
    what = f"{name}: memory / most in use at once"
    return Row(what, f"at most {MOST}" if bar else "(told)", measured, not bar or plan.ratio <= MOST, details)


if __name__ == "__main__":
    sys.exit(main())
