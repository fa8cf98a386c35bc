"""The main job in figures: ResNet-18 against onnxruntime, and everything around a call.

Writes results/MACHINE/resnet18.*
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tvm_ext.benchmarking.benchmark import benchmark
from tvm_ext.benchmarking.table import BenchmarkTable
from tvm_ext.frontend import zoo

from benchmarks.asked.settings import run_folder
from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row
from benchmarks.measuring.processes import Probe, probe, probes


def main() -> int:
    """Measure all rows; 1 if a bar was missed."""
    args = _arguments()
    with run_folder("resnet18") as folder:
        model, artifact = (str(folder / f"resnet18.{kind}") for kind in ("onnx", "so"))
        zoo.save("resnet18", model)
        say("ResNet-18: rounds against the others")
        others = ("onnxruntime",) if args.no_stock else ("onnxruntime", "tvm")
        table = benchmark(
            model, others, args.threads, rounds=args.rounds, seconds_per_round=args.seconds,
            progress=say, cache=False, records=None,
        )  # fmt: skip
        rows = [*_time(table, args.threads), *_checked(model, artifact, args.threads)]
        rows += [*_compile(model, args), *_load(artifact, args), *_start(args)]
        rows += _calls(artifact, args)
    extra = {"threads": args.threads, "rounds": table.as_dict()}
    return write_results(args.output, "resnet18", rows, extra, f"## Rounds\n\n{table.markdown()}")


def _arguments() -> argparse.Namespace:
    return arguments.parser(
        __doc__, threads=2, rounds=11, seconds=1.0, output=RESULTS,
        repeats=(5, "fresh processes of each probe"),
        calls=(1000, "calls from short-lived threads"),
        no_stock=(False, "leave stock TVM out, which takes seconds a run"),
    ).parse_args()  # fmt: skip


def _time(table: BenchmarkTable, threads: int) -> Iterator[Row]:
    ratio = table.ratio("onnxruntime")
    text, noisy = "; ".join(row.reason for row in table.rows if row.reason), False
    sides = [table.row(name).statistics() for name in ("tvm_ext", "onnxruntime")]
    if ratio is not None:
        rounds = table.round_ratios("onnxruntime")
        least, medians = (
            "{:.2f} / {:.2f} ms".format(*(1e3 * side[key] for side in sides))
            for key in ("min", "median")
        )
        # A scattering ratio is still an answer where every round is on one side of the bar.
        noisy = table.too_noisy("onnxruntime") and max(rounds) > 1.0
        scatter = f"rounds {min(rounds):.2f} to {max(rounds):.2f}"
        text = f"{ratio:.3f} ({scatter}; least {least}, medians {medians})"
        text += "; too noisy to tell" if noisy else ""
    what = f"ResNet-18 f32, batch 1, {threads} threads, no records: time / onnxruntime"
    good = ratio is not None and ratio <= 1.0 and not noisy
    yield Row(what, "1.0 or less", text, good, {"ratio": ratio})
    names = [row.name for row in table.rows]
    if "tvm" in names and (stock := table.ratio("tvm")) is not None:
        what, details = "the same / stock TVM", {"ratio": stock}
        yield Row(what, "(for comparison)", f"{stock:.4f}", True, details)


def _checked(model: str, artifact: str, threads: int) -> Iterator[Row]:
    say("error, launches, kernels")
    answer = probe("check", model, threads, artifact)
    error, launches = f"{answer['of_range']:.1e} (three seeds)", answer["launches"]
    good = answer["ok"] and answer["of_range"] <= 1e-5
    what = "error against onnxruntime, of the output range"
    yield Row(what, "1e-5 or less", error, good, answer)
    yield Row("launches per inference", "24 or fewer", str(launches), launches <= 24)
    generic = answer["generic"]
    names = f": {', '.join(generic)}" if generic else ""
    text = f"{len(generic)} of {answer['kernels']}{names}"
    yield Row("kernels on the generic schedule", "0", text, not generic)


def _compile(model: str, args: argparse.Namespace) -> Iterator[Row]:
    say("compiling in fresh processes")
    commands = {
        name: (name, model, args.threads)
        for name in ("compile_cold", "compile_cached", "onnxruntime_start")
    }
    cold = probes({"cold": commands.pop("compile_cold")}, min(args.repeats, 3), {})["cold"]
    what, details = "compile, cold process, imports included", {"seconds": cold.seconds}
    yield Row(what, "6 s", f"{cold.median:.2f} s", cold.median <= 6.0, details)
    yield _cached_row(*probes(commands, args.repeats, {}).values())


def _cached_row(ours: Probe, other: Probe) -> Row:
    session, imported = other.answer("session"), ours.answer("import")
    compiled = ours.answer("compile")
    # the interpreter's start is in neither figure of the probe, and is no one's to save
    start = ours.median - imported - compiled
    bar = 1.5 * session + imported + start
    parts = f"start and import {imported + start:.2f} s, from the cache {compiled:.3f} s"
    text = f"{ours.median:.2f} s: {parts}; onnxruntime's session {session:.3f} s"
    details = {
        "ours": ours.seconds, "onnxruntime": other.seconds,
        "onnxruntime_import": other.answer("import"),
    }  # fmt: skip
    bar_text = f"1.5 x onnxruntime's session start + the import = {bar:.2f} s"
    return Row("compile again, from the cache", bar_text, text, ours.median <= bar, details)


def _load(artifact: str, args: argparse.Namespace) -> Iterator[Row]:
    say("loading the artifact in fresh processes")
    runtime = {"TVM_USE_RUNTIME_LIB": "1"}
    for what, bar, env in (("full import", 2.0, {}), ("runtime only", 1.2, runtime)):
        command = ("load_and_run", artifact, what.split()[0])
        loads = probes({"load": command}, args.repeats, env)["load"]
        good = loads.median <= bar and all(answer["finite"] for answer in loads.answers)
        title, details = f"load and run once, fresh process, {what}", {"seconds": loads.seconds}
        yield Row(title, f"{bar} s", f"{loads.median:.2f} s", good, details)


def _start(args: argparse.Namespace) -> Iterator[Row]:
    say("tvm-ext --help")
    seconds, command = [], [sys.executable, "-m", "tvm_ext.cli", "--help"]
    for _ in range(args.repeats + 1):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - begin)
    median, details = statistics.median(seconds[1:]), {"seconds": seconds[1:]}
    yield Row("tvm-ext --help", "0.3 s", f"{median:.2f} s", median <= 0.3, details)


def _calls(artifact: str, args: argparse.Namespace) -> Iterator[Row]:
    say("call overhead")
    overhead = probes({"call": ("call_overhead", args.threads)}, 3, {})["call"]
    least, median = overhead.answer("microseconds"), overhead.answer("median_microseconds")
    what, text = "call overhead of a one-kernel model, numpy to numpy", f"{least:.1f} us"
    yield Row(what, "10 us", f"{text} (median {median:.1f} us)", least <= 10.0)
    calls = f"{args.calls} calls from {args.calls}"
    say(f"{calls} threads")
    threads = probe("many_threads", artifact, args.calls)
    counts = threads["os_threads"]
    # the first waves start the executors: what must not happen is that later ones add to them
    early, last = max(counts[: max(1, len(counts) // 10)]), counts[-1]
    grown = f"{early} after {args.calls // 10} calls, {last} after all"
    what = f"OS threads after {calls} short-lived threads; wrong answers"
    good = last <= early and threads["wrong"] == 0
    text = f"{grown}; {threads['wrong']} wrong"
    yield Row(what, "constant; 0", text, good, {"os_threads": counts})


if __name__ == "__main__":
    sys.exit(main())
