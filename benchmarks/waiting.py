"""What waiting costs: CPU time and latency of calls with pauses between them. Writes results/waiting.*

Our side waits as it does by default, and spinning until the next call; onnxruntime is told beside.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from _common import RESULTS, Row, say, write_results
from _machine import this_machine
from _models import MODELS

from tvm_ext.benchmarking.process import Worker
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.frontend.reading.shapes import input_specs
from tvm_ext.verification.arrays import save_npz

#: Of a call's CPU time over its work, and of the median latency over that of threads that spin until the next call.
CPU_BAR, LATENCY_BAR = 1.3, 1.05
#: Seconds between two calls.
PAUSES = (0.05, 0.2, 1.0)
#: Calls of a contender in a round, back to back.
TOGETHER = 10
#: Contender -> its runtime and options. A spin of 60 s outlasts every pause; its process is killed at the end.
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("tvm_ext", {}),
    "spinning": ("tvm_ext", {"threads_wait": 60.0}),
    "onnxruntime": ("onnxruntime", {}),
}
TIMEOUT = 300.0


@dataclass
class Calls:
    """Calls of one contender with one pause, a value a round.

    Attributes:
        cpu: seconds of CPU time a call, with what its threads take in the pause after it.
        work: of that, what was spent during the call.
        latency: median of the calls, in seconds.
    """

    cpu: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)


Found = dict[tuple[str, float], Calls]
"""(Contender, pause) -> its calls; a pause of 0 is back to back."""


def main() -> int:
    """Measure; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/waiting.py --pauses 0.05 0.2 --rounds 9",
    )  # fmt: skip
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet18", help="model of the suite (resnet18)")
    parser.add_argument("--pauses", nargs="+", type=float, default=PAUSES, help="seconds between two calls")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default: 9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a contender and a pause in a round (default: 1)")
    parser.add_argument("--add", action="store_true", help="keep the rows of other pauses and models that are there")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        workers = _prepared(args.model, args.threads, pathlib.Path(folder), stack)
        found = measure(workers, args.pauses, args.rounds, args.seconds)
    rows = [row for pause in args.pauses for row in rows_of(found, args.model, pause)]
    rows = [*(_others(args.output, rows) if args.add else ()), *rows]
    write_results(args.output, "waiting", rows, {"threads": args.threads, "rounds": args.rounds}, _notes(args.threads))
    return 0 if all(row.met for row in rows) else 1


def _others(folder: pathlib.Path, rows: Sequence[Row]) -> list[Row]:
    """Rows of the result file that are not measured anew; none if it is of another machine or of other versions."""
    try:
        document = json.loads((folder / "waiting.json").read_text())
    except FileNotFoundError:
        return []
    measured = {row.what for row in rows}
    same = document["machine"] == json.loads(json.dumps(this_machine()))
    return [Row(**row) for row in document["rows"] if row["what"] not in measured] if same else []


def _prepared(key: str, threads: int, folder: pathlib.Path, stack: contextlib.ExitStack) -> dict[str, Worker]:
    """A process of each contender that has run the model once."""
    model, inputs = MODELS[key].write(folder), folder / "inputs.npz"
    source = read_model(model)
    specs = input_specs(source.proto.graph, dict(MODELS[key].shapes), source.name)
    save_npz(inputs, {**seeded_inputs(specs), **MODELS[key].inputs()})
    workers = {}
    for name, (runtime, options) in CONTENDERS.items():
        say(f"preparing {name}")
        worker = workers[name] = Worker(threads)
        stack.callback(worker.close)
        shapes = {name: list(shape) for name, shape in MODELS[key].shapes.items()}
        own = {"shapes": shapes, "records": None, **options} if runtime == "tvm_ext" else {}
        message = {"contender": runtime, "model": str(model), "threads": threads, "options": own}
        outputs = folder / f"{name}.npz"
        worker.ask({**message, "inputs": str(inputs), "outputs": str(outputs)}, TIMEOUT)
    return workers


def measure(workers: Mapping[str, Worker], pauses: Sequence[float], rounds: int, seconds: float) -> Found:
    """Interleaved rounds; every second one in the opposite order."""
    found = {(name, pause): Calls() for name in workers for pause in (0.0, *pauses)}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for pause in (0.0, *pauses):
            calls = max(2, round(seconds / pause)) if pause else TOGETHER
            for name in list(workers) if number % 2 == 0 else reversed(list(workers)):
                answer = workers[name].ask({"paused": {"calls": calls, "pause": pause}}, TIMEOUT)
                found[name, pause].cpu.append(answer["cpu"])
                found[name, pause].work.append(answer["work"])
                found[name, pause].latency.append(statistics.median(answer["samples"]))
    return found


def rows_of(found: Found, model: str, pause: float) -> list[Row]:
    """The two figures of a pause, and onnxruntime's CPU time beside them."""
    ours, spinning, other = (found[name, pause] for name in CONTENDERS)
    cpu, latency = _ratio(ours.cpu, ours.work), _ratio(ours.latency, spinning.latency)
    together = found["default", 0.0].cpu
    text = ", ".join(
        f"{name} {_ms(found[name, pause].cpu)} of {_ms(found[name, pause].work)} ms" for name in CONTENDERS
    )
    text += f"; {_ms(together)} ms a call back to back"
    speeds = f"{_ms(ours.latency)} / {_ms(spinning.latency)} ms; onnxruntime {_ms(other.latency)} ms"
    what = f"{model}, a call every {pause * 1e3:.0f} ms"
    details = {name: vars(found[name, pause]) for name in CONTENDERS} | {"together": together}
    return [
        Row(f"{what}: CPU time / work", f"{CPU_BAR}", f"{cpu:.2f}; {text}", cpu <= CPU_BAR, details),
        Row(f"{what}: median latency / spinning", f"{LATENCY_BAR}", f"{latency:.2f}; {speeds}", latency <= LATENCY_BAR),
    ]


def _ratio(values: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(values, others, strict=True))


def _ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f}"


def _notes(threads: int) -> str:
    return (
        f"{threads} threads. CPU time of a call includes what the process takes in the pause after it; work is what "
        "is taken during the call, by the same clock. A call after a pause costs more than one back to back: it finds "
        "caches cold. Each figure is the median over interleaved rounds of the ratio of two values of the round; each "
        "contender is a process of its own, stopped while another is measured. Spinning is `threads_wait=60.0`. "
        "onnxruntime has its default settings."
    )


if __name__ == "__main__":
    sys.exit(main())
