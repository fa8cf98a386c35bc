"""Memory that programs work in, over the least that any plan needs. Writes
results/MACHINE/memory_plan.*"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext

from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row, prose

#: Of arena and pools together, over the most bytes in use in one launch.
MOST = 1.15
#: Models of the zoo with a bar; the others are told.
WITH_BAR = ("resnet18", "resnet50", "mobilenet_v2")
MODELS = (*WITH_BAR, "bert", "mlp")
_NOTE = prose("""
    Activations and workspace of kernels lie in one arena; what a thread needs for itself, up to
    256 KiB, it takes from a pool of its own, which keeps what the largest kernel took. Both are
    counted. The lower bound is the most that is in use in one launch. Inputs, weights and
    outputs are the caller's and not counted.""")


def main() -> int:
    """Compile, compare; 1 if a bar was missed."""
    args = arguments.parser(
        __doc__, "memory_plan.py --only resnet18", only=MODELS, what="models of the zoo",
        threads=2, output=RESULTS,
    ).parse_args()  # fmt: skip
    rows = [_row(name, args.threads) for name in args.only]
    return write_results(args.output, "memory_plan", rows, {"threads": args.threads}, _NOTE)


def _row(name: str, threads: int) -> Row:
    say(f"{name} ...")
    plan = tvm_ext.memory_plan(tvm_ext.zoo.MODELS[name](), threads=threads, records=None)
    bar = name in WITH_BAR
    sizes = f"{plan.nbytes / 1e6:.2f} MB of {plan.lower_bound / 1e6:.2f} MB"
    text = f"{plan.ratio:.3f}: {sizes}, {plan.no_reuse / 1e6:.2f} MB without reuse"
    facts = {
        name: getattr(plan, name) for name in ("lower_bound", "no_reuse", "ratio", "arena_bytes")
    }
    details = {"bytes": plan.nbytes, **facts, "launches": len(plan.launches)}
    what, met = f"{name}: memory / most in use at once", not bar or plan.ratio <= MOST
    return Row(what, f"at most {MOST}" if bar else "(told)", text, met, details)


if __name__ == "__main__":
    sys.exit(main())
