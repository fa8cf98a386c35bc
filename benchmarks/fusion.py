"""What fusion is worth: launches, bytes moved and time with each fusion model. Writes results/MACHINE/fusion.*

default     everything an expression of bounded size can hold joins the kernel behind its operand
none        each operation is a kernel
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from _common import RESULTS, markdown_table, say, write_text
from _machine import machine_text, this_machine

import tvm_ext
from tvm_ext.core.fusion import FUSION_MODELS

MODELS = ("resnet18", "mobilenet_v2", "bert")


def main() -> int:
    """Measure; 1 if a result disagrees with onnxruntime's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/fusion.py --only bert --rounds 7",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, help="models of the zoo (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds, 7 or more (default: 7)")
    args = parser.parse_args()
    rows = [_measure(model, fusion, args.rounds) for model in args.only for fusion in sorted(FUSION_MODELS)]
    _write(rows)
    return 0 if all(row["ratio"] for row in rows) else 1


def _measure(model: str, fusion: str, rounds: int) -> dict[str, Any]:
    say(f"{model}, fusion={fusion!r} ...")
    table = tvm_ext.benchmark(
        tvm_ext.zoo.MODELS[model](), rounds=rounds, seconds_per_round=0.3, fusion=fusion, records=None
    )
    ours = table.rows[0]
    return {
        "model": model, "fusion": fusion, "launches": ours.details.get("launches"),
        "bytes_moved": ours.details.get("bytes_moved"), "milliseconds": ours.statistics().get("min", 0.0) * 1e3,
        "ratio": table.ratio("onnxruntime"), "of_range": ours.of_range, "reason": ours.reason,
    }  # fmt: skip


def _write(rows: list[dict[str, Any]]) -> None:
    machine = this_machine()
    cells = [("model", "fusion", "launches", "MB moved", "least ms", "time / onnxruntime's", "error of range")]
    cells += [
        (
            r["model"], r["fusion"], str(r["launches"]), f"{(r['bytes_moved'] or 0) / 1e6:.1f}",
            f"{r['milliseconds']:.2f}", f"{r['ratio']:.2f}" if r["ratio"] else r["reason"], f"{r['of_range'] or 0:.1e}",
        )
        for r in rows
    ]  # fmt: skip
    notes = (
        "Bytes moved are those of the arguments and results of all kernels of a run, weights included. With `none` the "
        "transforms around each operation stay as well: nothing is fused, but layouts are still chosen."
    )
    text = "\n".join(["# Fusion", "", machine_text(machine), "", *markdown_table(cells), "", notes])
    write_text(RESULTS / "fusion.md", text)
    write_text(RESULTS / "fusion.json", json.dumps({"machine": machine, "rows": rows}, indent=1))
    print(text)


if __name__ == "__main__":
    sys.exit(main())
