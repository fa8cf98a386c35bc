"""What fusion is worth: launches, bytes moved and time with each fusion model. Writes
results/MACHINE/fusion.*

default     everything an expression of bounded size can hold joins the kernel behind its operand
none        each operation is a kernel
"""

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tvm_ext.core.fusion import FUSION_MODELS

from benchmarks.common import arguments
from benchmarks.common.machine import machine_text, this_machine
from benchmarks.common.results import RESULTS, say, write_page
from benchmarks.common.rows import prose, table

MODELS = ("resnet18", "mobilenet_v2", "bert")
_HEAD = ("model", "fusion", "launches", "MB moved", "least ms", "time / onnxruntime's",
         "error of range")  # fmt: skip
_NOTES = prose("""
    Bytes moved are those of the arguments and results of all kernels of a run, weights
    included. With `none` the transforms around each operation stay as well: nothing is fused,
    but layouts are still chosen.""")


def main() -> int:
    """Measure; 1 if a result disagrees with onnxruntime's."""
    example = "fusion.py --only bert --rounds 7"
    args = arguments.parser(
        __doc__, example, only=MODELS, what="models of the zoo", rounds=7
    ).parse_args()
    pairs = [(model, fusion) for model in args.only for fusion in sorted(FUSION_MODELS)]
    rows, machine = [_measure(*pair, args.rounds) for pair in pairs], this_machine()
    parts = ["# Fusion", machine_text(machine), table([_HEAD, *map(_cells, rows)]), _NOTES]
    write_page(RESULTS, "fusion", {"machine": machine, "rows": rows}, parts)
    return 0 if all(row["ratio"] for row in rows) else 1


def _measure(model: str, fusion: str, rounds: int) -> dict[str, Any]:
    say(f"{model}, fusion={fusion!r} ...")
    options = {"rounds": rounds, "seconds_per_round": 0.3, "fusion": fusion, "records": None}
    table = tvm_ext.benchmark(tvm_ext.zoo.MODELS[model](), **options)
    ours = table.rows[0]
    return {
        "model": model, "fusion": fusion, "launches": ours.details.get("launches"),
        "bytes_moved": ours.details.get("bytes_moved"),
        "milliseconds": ours.statistics().get("min", 0.0) * 1e3,
        "ratio": table.ratio("onnxruntime"), "of_range": ours.of_range, "reason": ours.reason,
    }  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = f"{row['ratio']:.2f}" if row["ratio"] else row["reason"]
    moved, launches = f"{(row['bytes_moved'] or 0) / 1e6:.1f}", str(row["launches"])
    times = f"{row['milliseconds']:.2f}", ratio, f"{row['of_range'] or 0:.1e}"
    return row["model"], row["fusion"], launches, moved, *times


if __name__ == "__main__":
    sys.exit(main())
