"""What tuning does: trials a second, models before and after, templates before and after.

Writes results/MACHINE/tuning.*

rate           our tuner over the recipes of ResNet-18's convolutions, and MetaSchedule over the same kernels
models         shipped logs (tuning_logs/), where they were recorded on this machine: the whole model tuned / untuned,
               paired rounds with an interval
templates      conv2d, dense and batch_matmul by a template: unscheduled, and the best found
beam           ResNet-18: no tuning, beam, xgb with as many trials
kills          sessions killed at random moments, each going on with the log of the one before
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from _common import RESULTS, markdown_table, say, write_text
from _kills import kill_sessions
from _machine import machine_text, this_machine
from _templates import TASKS

import tvm_ext
from tvm_ext.core.machine import Machine
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.tuning.in_model import Ratio, paired

MODELS = ("resnet18", "resnet50", "mobilenet_v2")
STORED = RESULTS / "tuning.json"

Part = dict[str, Any]


def main() -> int:
    """Measure the parts asked for; the others keep their stored results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/tuning.py --only rate templates --trials 100",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--trials", type=int, default=0, help="trials of each session, if not those of the table")
    args = parser.parse_args()
    results = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in args.only:
        say(f"{name} ...")
        results[name] = {"machine": this_machine(), "rows": PARTS[name](args.trials)}
        write_text(STORED, json.dumps(results, indent=1) + "\n")
    write_text(RESULTS / "tuning.md", _page(results))
    return 0


def rate(trials: int) -> list[Part]:
    """Trials a second, builds, checks and the search included; the session's start and the model at the end are not."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for tuner, count, bar in (("xgb", trials or 300, 5.0), ("metaschedule", trials or 500, 2.0)):
            options: dict[str, Any] = {"tasks": ["conv2d"]} if tuner == "xgb" else {}
            log = pathlib.Path(folder, tuner)
            report = tvm_ext.tune(tvm_ext.zoo.resnet18(), trials=count, tuner=tuner, log=log, **options)
            rows.append({
                "tuner": tuner, "trials": report.trials, "seconds": report.seconds, "bar": bar,
                "rate": report.trials / report.seconds, "failed": sum(r.failed for r in report.rows),
                "ratio": _plain(report.ratio), "error": report.error,
            })  # fmt: skip
    return rows


def models(trials: int) -> list[Part]:
    """Shipped logs against none."""
    machine = Machine.detect()
    rows = []
    for name in MODELS:
        log = pathlib.Path(__file__).parents[1] / "tuning_logs" / f"{name}.{machine.mcpu}-t{machine.threads}.json"
        proto = tvm_ext.zoo.MODELS[name]()
        untuned = tvm_ext.compile(proto, records=None)
        tuned = tvm_ext.compile(proto, records=log) if log.exists() else untuned
        ratio = paired(tuned, untuned, seeded_inputs(untuned.inputs), rounds=21)
        checked = tvm_ext.verify(tuned, proto)
        changed = sum(bool(kernel["record"]) for kernel in tuned.report["kernels"])
        kernels = len(tuned.report["kernels"])
        rows.append({
            "model": name, "log": log.name, "ratio": _plain(ratio), "changed": changed, "kernels": kernels,
            "error": checked.worst.of_range if checked.worst else None, "ok": checked.ok,
        })  # fmt: skip
    return rows


def templates(trials: int) -> list[Part]:
    """Unscheduled and tuned."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in TASKS.items():
            log = pathlib.Path(folder, "log.json")
            (row,) = tvm_ext.tune(make(), trials=trials or 120, log=log).rows
            rows.append({
                "task": name, "space": row.space, "trials": row.trials, "before": row.flops / row.before / 1e9,
                "after": row.flops / row.after / 1e9, "config": row.config,
            })  # fmt: skip
    return rows


def beam(trials: int) -> list[Part]:
    """The same number of trials by beam search and by the rank model, against none."""
    proto, rows = tvm_ext.zoo.resnet18(), []
    untuned = tvm_ext.compile(proto, records=None)
    inputs = seeded_inputs(untuned.inputs)
    rows.append({"tuner": "none", "trials": 0, "ratio": None, "launches": untuned.report["launches"]})
    with tempfile.TemporaryDirectory() as folder:
        for tuner in ("beam", "xgb"):
            log = pathlib.Path(folder, f"{tuner}.json")
            report = tvm_ext.tune(proto, trials=trials or 600, tuner=tuner, log=log)
            tuned = tvm_ext.compile(proto, records=log)
            ratio: Ratio = paired(tuned, untuned, inputs)
            rows.append({
                "tuner": tuner, "trials": report.trials, "ratio": _plain(ratio), "launches": tuned.report["launches"]
            })  # fmt: skip
    return rows


def kills(trials: int) -> list[Part]:
    """Twenty kills of whole sessions."""
    return [kill_sessions(20)]


PARTS: Mapping[str, Callable[[int], list[Part]]] = {
    "rate": rate, "models": models, "templates": templates, "beam": beam, "kills": kills,
}  # fmt: skip


def _plain(ratio: Ratio | None) -> dict[str, Any] | None:
    return ratio and {
        "median": ratio.median, "low": ratio.low, "high": ratio.high, "rounds": ratio.rounds,
        "milliseconds": [1e3 * s for s in ratio.seconds],
    }  # fmt: skip


def _page(results: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    parts = ["# Tuning", "", "`python benchmarks/tuning.py` writes this page.", ""]
    for name, title in _TITLES.items():
        if name in results:
            cells = _CELLS[name](results[name]["rows"])
            parts += [f"## {title}", "", machine_text(results[name]["machine"]), "", *markdown_table(cells), ""]
    return "\n".join(parts)


_TITLES = {
    "rate": "Trials a second, ResNet-18", "models": "Models with the shipped logs",
    "templates": "Templates", "beam": "Beam search, ResNet-18", "kills": "Sessions killed at random moments",
}  # fmt: skip


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    return f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})" if ratio else ""


def _rate_cells(rows: list[Part]) -> list[tuple[str, ...]]:
    head = ("tuner", "trials", "seconds", "a second", "bar", "failed", "whole model, tuned / untuned")
    return [head] + [
        (r["tuner"], str(r["trials"]), f"{r['seconds']:.0f}", f"{r['rate']:.1f}", f"{r['bar']:g}", str(r["failed"]),
         _ratio(r["ratio"]))
        for r in rows
    ]  # fmt: skip


def _model_cells(rows: list[Part]) -> list[tuple[str, ...]]:
    head = ("model", "log", "kernels with a record", "tuned / untuned", "ms tuned; untuned", "error of range")
    return [head] + [
        (r["model"], r["log"], f"{r['changed']} of {r['kernels']}", _ratio(r["ratio"]),
         "; ".join(f"{m:.2f}" for m in r["ratio"]["milliseconds"]), f"{r['error']:.1e}")
        for r in rows
    ]  # fmt: skip


def _template_cells(rows: list[Part]) -> list[tuple[str, ...]]:
    head = ("task", "configurations", "trials", "GFLOP/s unscheduled", "tuned", "configuration")
    return [head] + [
        (r["task"], str(r["space"]), str(r["trials"]), _number(r["before"]), _number(r["after"]),
         json.dumps(r["config"]))
        for r in rows
    ]  # fmt: skip


def _beam_cells(rows: list[Part]) -> list[tuple[str, ...]]:
    head = ("tuner", "trials", "whole model / untuned", "launches")
    return [head] + [(r["tuner"], str(r["trials"]), _ratio(r["ratio"]) or "1", str(r["launches"])) for r in rows]


def _kill_cells(rows: list[Part]) -> list[tuple[str, ...]]:
    head = ("kills", "records", "known to the last session", "finished records lost", "duplicates", "lines cut off")
    return [head] + [
        tuple(str(r[key]) for key in ("kills", "records", "known", "lost", "duplicates", "cut")) for r in rows
    ]  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "not measured"


_CELLS: Mapping[str, Callable[[list[Part]], list[tuple[str, ...]]]] = {
    "rate": _rate_cells, "models": _model_cells, "templates": _template_cells, "beam": _beam_cells,
    "kills": _kill_cells,
}  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main())
