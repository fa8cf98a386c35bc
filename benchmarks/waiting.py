"""What waiting costs: CPU time and latency of calls with pauses between them, and of calls beside
other programs that want the cores. Writes results/MACHINE/waiting.*

Our side waits as it does by default, and spinning until the next call; onnxruntime is told beside.
"""

import contextlib
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tvm_ext.benchmarking.process import Worker

from benchmarks.asked.settings import Settings
from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row, prose
from benchmarks.measuring.contest import TIMEOUT, Contender, Contest
from benchmarks.models.models import MODELS, outputs_of

#: Of a call's CPU time over its work, and of the median latency over that of threads that spin
#: until the next call.
CPU_BAR, LATENCY_BAR = 1.3, 1.05
#: Seconds between two calls.
PAUSES = (0.05, 0.2, 1.0)
#: Calls of a contender in a round, back to back.
TOGETHER = 10
#: Programs beside, that never pause, and their priorities (as of `nice`); the bar of our mean time
#: over onnxruntime's.
PROGRAMS, PRIORITIES, BESIDE_BAR = 2, (0, 19), 1.0
#: Contender -> its runtime and options. A spin of 60 s outlasts every pause; its process is killed
#: at the end.
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("tvm_ext", {}),
    "spinning": ("tvm_ext", {"threads_wait": 60.0}),
    "onnxruntime": ("onnxruntime", {}),
}


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


CallsByPause = dict[tuple[str, float], Calls]
"""(Contender, pause) -> its calls; a pause of 0 is back to back."""


def main() -> int:
    """Measure; 1 if a bar was missed."""
    parser = arguments.parser(
        __doc__, "waiting.py --pauses 0.05 0.2 --rounds 9", threads=2, rounds=9, seconds=1.0,
        output=RESULTS, pauses=(PAUSES, "seconds between two calls"),
        add=(False, "keep the rows of other pauses and models that are there"),
    )  # fmt: skip
    names = {"choices": sorted(MODELS), "default": "resnet18", "metavar": "NAME"}
    parser.add_argument("--model", **names, help="model of the suite (resnet18)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        workers = _prepared(args.model, args.threads, pathlib.Path(folder), stack)
        by_pause = measure(workers, args.pauses, args.rounds, args.seconds)
        rows = [beside(workers, args.model, nice, args.rounds) for nice in PRIORITIES]
    rows = [*(row for p in args.pauses for row in rows_of(by_pause, args.model, p)), *rows]
    extra = {"threads": args.threads, "rounds": args.rounds}
    notes, measured = f"{args.threads} threads. {_NOTES}", [row.what for row in rows]
    kept = measured if args.add else None
    return write_results(args.output, "waiting", rows, extra, notes, kept)


def _prepared(
    key: str, threads: int, folder: pathlib.Path, stack: contextlib.ExitStack
) -> Mapping[str, Worker]:
    """A process of each contender that has run the model once, with outputs that agree.

    Raises:
        RuntimeError: one failed, or computed something else.
    """
    model = MODELS[key].write(folder)
    entries = [
        Contender(name, name, runtime, model, "f32", options)
        for name, (runtime, options) in CONTENDERS.items()
    ]
    inputs = MODELS[key].inputs(folder)
    race = Contest(entries, inputs, outputs_of(model), Settings(folder, threads), stack)
    race.prepare(list(CONTENDERS))
    if race.reasons:
        raise RuntimeError("; ".join(f"{name}: {why}" for name, why in race.reasons.items()))
    return {name: race.workers[name] for name in CONTENDERS}


def measure(
    workers: Mapping[str, Worker], pauses: Sequence[float], rounds: int, seconds: float
) -> CallsByPause:
    """Interleaved rounds; every second one in the opposite order."""
    by_pause = {(name, pause): Calls() for name in workers for pause in (0.0, *pauses)}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for pause in (0.0, *pauses):
            calls = max(2, round(seconds / pause)) if pause else TOGETHER
            paused = {"paused": {"calls": calls, "pause": pause}}
            for name in list(workers) if number % 2 == 0 else reversed(list(workers)):
                answer, own = workers[name].ask(paused, TIMEOUT), by_pause[name, pause]
                own.cpu.append(answer["cpu"])
                own.work.append(answer["work"])
                own.latency.append(statistics.median(answer["samples"]))
    return by_pause


def rows_of(by_pause: CallsByPause, model: str, pause: float) -> list[Row]:
    """The two figures of a pause, and onnxruntime's CPU time beside them."""
    calls = {name: by_pause[name, pause] for name in CONTENDERS}
    ours, spinning, other = calls.values()
    cpu, latency = _ratio(ours.cpu, ours.work), _ratio(ours.latency, spinning.latency)
    together, details = (
        by_pause["default", 0.0].cpu,
        {name: vars(own) for name, own in calls.items()},
    )
    each = (f"{name} {_ms(own.cpu)} of {_ms(own.work)} ms" for name, own in calls.items())
    text = f"{cpu:.2f}; {', '.join(each)}; {_ms(together)} ms a call back to back"
    beside = f"onnxruntime {_ms(other.latency)} ms"
    speeds = f"{latency:.2f}; {_ms(ours.latency)} / {_ms(spinning.latency)} ms; {beside}"
    what = f"{model}, a call every {pause * 1e3:.0f} ms"
    first, second = f"{what}: CPU time / work", f"{what}: median latency / spinning"
    return [
        Row(first, f"{CPU_BAR}", text, cpu <= CPU_BAR, {**details, "together": together}),
        Row(second, f"{LATENCY_BAR}", speeds, latency <= LATENCY_BAR),
    ]


def beside(workers: Mapping[str, Worker], model: str, nice: int, rounds: int) -> Row:
    """Mean time of a call while programs beside want the cores, over onnxruntime's."""
    busy = f"import os\nos.nice({nice})\nwhile True: pass"
    times: dict[str, list[float]] = {"default": [], "onnxruntime": []}
    with contextlib.ExitStack() as stack:
        for _ in range(PROGRAMS):
            program = subprocess.Popen([sys.executable, "-c", busy])
            stack.callback(program.wait)
            stack.callback(program.kill)
        for number in range(rounds):
            say(f"beside {PROGRAMS} programs of priority {nice}: round {number + 1} of {rounds}")
            for name, means in times.items():
                asked = {"paused": {"calls": 2 * TOGETHER, "pause": 0.0}}
                means.append(statistics.mean(workers[name].ask(asked, TIMEOUT)["samples"]))
    ours, other = times.values()
    ratio, each = _ratio(ours, other), f"{_ms(ours)} / {_ms(other)} ms"
    what = f"{model}, beside {PROGRAMS} busy programs, nice {nice}: mean time / onnxruntime"
    return Row(what, f"{BESIDE_BAR}", f"{ratio:.2f}; {each}", ratio <= BESIDE_BAR, times)


def _ratio(values: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(values, others, strict=True))


def _ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f}"


_NOTES = prose("""
    CPU time of a call includes what the process takes in the pause after it; work is what is
    taken during the call, by the same clock. A call after a pause costs more than one back to
    back: it finds caches cold. Each figure is the median over interleaved rounds of the ratio
    of two values of the round; each contender is a process of its own, stopped while another is
    measured. Spinning is `threads_wait=60.0`. onnxruntime has its default settings.""")


if __name__ == "__main__":
    sys.exit(main())
