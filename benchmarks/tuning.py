"""What tuning does: trials a second, models before and after, templates before and after.

Writes results/MACHINE/tuning.*

rate         our tuner over the recipes of ResNet-18's convolutions, and MetaSchedule over the same
             kernels
models       shipped logs (tuning_logs/), where they were recorded on this machine: the whole model
             tuned / untuned, paired rounds with an interval
templates    conv2d, dense and batch_matmul by a template: unscheduled, and the best found
beam         ResNet-18: no tuning, beam, xgb with as many trials
kills        sessions killed at random moments, each going on with the log of the one before
"""

import functools
import json
import math
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tvm_ext.core.machine import Machine
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.tuning.in_model import Ratio, paired

from benchmarks.common import arguments
from benchmarks.common.machine import machine_text
from benchmarks.common.results import FOLDER, write_parts
from benchmarks.common.rows import table
from benchmarks.searching.kills import kill_sessions
from benchmarks.searching.templates import TASKS

MODELS = ("resnet18", "resnet50", "mobilenet_v2")
Plain = dict[str, Any]


def main() -> int:
    """Measure the parts asked for; the others keep their stored results."""
    parser = arguments.parser(
        __doc__, "tuning.py --only rate templates --trials 100", only=list(PARTS),
        trials=(0, "of each session, if not those of the table"),
    )  # fmt: skip
    args = parser.parse_args()

    def measured(key: str) -> Plain:
        with tempfile.TemporaryDirectory() as folder:
            return {"rows": list(PARTS[key][1](args.trials, pathlib.Path(folder)))}

    parts = {key: functools.partial(measured, key) for key in PARTS}
    write_parts("tuning", parts, args.only, page)
    return 0


def rate(trials: int, folder: pathlib.Path) -> Iterator[Plain]:
    """Trials a second, builds, checks and the search included; the session's start and the model at
    the end are not."""
    for tuner, count, bar in (("xgb", trials or 300, 5.0), ("metaschedule", trials or 500, 2.0)):
        options: Plain = {"tuner": tuner, "trials": count, "log": folder / tuner}
        options |= {"tasks": ["conv2d"]} if tuner == "xgb" else {}
        report = tvm_ext.tune(tvm_ext.zoo.resnet18(), **options)
        yield {
            "tuner": tuner, "trials": report.trials, "seconds": report.seconds, "bar": bar,
            "rate": report.trials / report.seconds, "failed": sum(r.failed for r in report.rows),
            "ratio": _plain(report.ratio), "error": report.error,
        }  # fmt: skip


def models(trials: int, folder: pathlib.Path) -> Iterator[Plain]:
    """Shipped logs against none."""
    machine, logs = Machine.detect(), FOLDER.parent / "tuning_logs"
    for name in MODELS:
        log = logs / f"{name}.{machine.mcpu}-t{machine.threads}.json"
        proto = tvm_ext.zoo.MODELS[name]()
        untuned = tvm_ext.compile(proto, records=None)
        tuned = tvm_ext.compile(proto, records=log) if log.exists() else untuned
        ratio = paired(tuned, untuned, seeded_inputs(untuned.inputs), rounds=21)
        checked, kernels = tvm_ext.verify(tuned, proto), tuned.report["kernels"]
        yield {
            "model": name, "log": log.name, "ratio": _plain(ratio),
            "changed": sum(bool(kernel["record"]) for kernel in kernels), "kernels": len(kernels),
            "error": checked.worst.of_range if checked.worst else None, "ok": checked.ok,
        }  # fmt: skip


def templates(trials: int, folder: pathlib.Path) -> Iterator[Plain]:
    """Unscheduled and tuned."""
    for name, make in TASKS.items():
        (row,) = tvm_ext.tune(make(), trials=trials or 120, log=folder / "log.json").rows
        before, after = (row.flops / seconds / 1e9 for seconds in (row.before, row.after))
        yield {
            "task": name, "space": row.space, "trials": row.trials, "before": before,
            "after": after, "config": row.config,
        }  # fmt: skip


def beam(trials: int, folder: pathlib.Path) -> Iterator[Plain]:
    """The same number of trials by beam search and by the rank model, against none."""
    proto = tvm_ext.zoo.resnet18()
    untuned = tvm_ext.compile(proto, records=None)
    inputs = seeded_inputs(untuned.inputs)
    yield {"tuner": "none", "trials": 0, "ratio": None, "launches": untuned.report["launches"]}
    for tuner in ("beam", "xgb"):
        log = folder / f"{tuner}.json"
        report = tvm_ext.tune(proto, trials=trials or 600, tuner=tuner, log=log)
        tuned = tvm_ext.compile(proto, records=log)
        ratio = _plain(paired(tuned, untuned, inputs))
        figures = {"ratio": ratio, "launches": tuned.report["launches"]}
        yield {"tuner": tuner, "trials": report.trials, **figures}


def kills(trials: int, folder: pathlib.Path) -> Iterator[Plain]:
    """Twenty kills of whole sessions."""
    yield kill_sessions(20)


def _plain(ratio: Ratio | None) -> Plain | None:
    if not ratio:
        return None
    about = {name: getattr(ratio, name) for name in ("median", "low", "high", "rounds")}
    return {**about, "milliseconds": [1e3 * s for s in ratio.seconds]}


def page(results: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    parts = ["# Tuning", "`python benchmarks/tuning.py` writes this page."]
    for name, (title, _, head, cells) in PARTS.items():
        if name in results:
            part = results[name]
            rows = [head, *map(cells, part["rows"])]
            parts += [f"## {title}", machine_text(part["machine"]), table(rows)]
    return "\n\n".join(parts)


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    return f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})" if ratio else ""


def _rate_cells(row: Plain) -> tuple[str, ...]:
    speed = f"{row['seconds']:.0f}", f"{row['rate']:.1f}", f"{row['bar']:g}"
    return row["tuner"], str(row["trials"]), *speed, str(row["failed"]), _ratio(row["ratio"])


def _model_cells(row: Plain) -> tuple[str, ...]:
    times = "; ".join(f"{m:.2f}" for m in row["ratio"]["milliseconds"])
    changed, ratio = f"{row['changed']} of {row['kernels']}", _ratio(row["ratio"])
    return row["model"], row["log"], changed, ratio, times, f"{row['error']:.1e}"


def _template_cells(row: Plain) -> tuple[str, ...]:
    values = [row["before"], row["after"]]
    rates = (f"{value:.1f}" if math.isfinite(value) else "not measured" for value in values)
    return row["task"], str(row["space"]), str(row["trials"]), *rates, json.dumps(row["config"])


def _beam_cells(row: Plain) -> tuple[str, ...]:
    ratio = _ratio(row["ratio"]) or "1"
    return row["tuner"], str(row["trials"]), ratio, str(row["launches"])


_KILLS = ("kills", "records", "known", "lost", "duplicates", "cut")


def _kill_cells(row: Plain) -> tuple[str, ...]:
    return tuple(
        str(row[key]) for key in ("kills", "records", "known", "lost", "duplicates", "cut")
    )


Measure = Callable[[int, pathlib.Path], Iterator[Plain]]
#: Part -> title, what measures it (trials, a folder for logs), head of its table, cells of a row.
PARTS: Mapping[str, tuple[str, Measure, tuple[str, ...], Callable[[Plain], tuple[str, ...]]]] = {
    "rate": ("Trials a second, ResNet-18", rate,
             ("tuner", "trials", "seconds", "a second", "bar", "failed",
              "whole model, tuned / untuned"), _rate_cells),
    "models": ("Models with the shipped logs", models,
               ("model", "log", "kernels with a record", "tuned / untuned", "ms tuned; untuned",
                "error of range"), _model_cells),
    "templates": ("Templates", templates,
                  ("task", "configurations", "trials", "GFLOP/s unscheduled", "tuned",
                   "configuration"), _template_cells),
    "beam": ("Beam search, ResNet-18", beam,
             ("tuner", "trials", "whole model / untuned", "launches"), _beam_cells),
    "kills": ("Sessions killed at random moments", kills,
              ("kills", "records", "known to the last session", "finished records lost",
               "duplicates", "lines cut off"), _kill_cells),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
