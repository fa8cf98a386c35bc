"""The main job in figures: ResNet-18 against onnxruntime, and everything around a call.

Writes results/MACHINE/resnet18.*
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

from _common import RESULTS, Probe, Row, fresh, probes, say, write_results

from tvm_ext.benchmarking.benchmark import benchmark
from tvm_ext.benchmarking.table import BenchmarkTable
from tvm_ext.frontend import zoo


def main() -> int:
    """Measure all rows; 1 if a bar was missed."""
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:
        model, artifact = (str(pathlib.Path(folder) / f"resnet18.{kind}") for kind in ("onnx", "so"))
        zoo.save("resnet18", model)
        env = {"XDG_CACHE_HOME": str(pathlib.Path(folder) / "cache")}
        say("ResNet-18: rounds against the others")
        others = ("onnxruntime",) if args.no_stock else ("onnxruntime", "tvm")
        table = benchmark(
            model, others, args.threads, rounds=args.rounds, seconds_per_round=args.seconds, progress=say, cache=False,
            records=None,
        )  # fmt: skip
        rows = [*_time(table, args.threads), *_checked(model, artifact, args.threads, env)]
        rows += [*_compile(model, args, env), *_load(artifact, args, env), *_start(args), *_calls(artifact, args, env)]
    notes = "## Rounds\n\n" + table.markdown()
    write_results(args.output, "resnet18", rows, {"threads": args.threads, "rounds": table.as_dict()}, notes)
    return 0 if all(row.met for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11, help="interleaved rounds (default: 11)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contender in a round (default: 1)")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes of each probe (default: 5)")
    parser.add_argument("--calls", type=int, default=1000, help="calls from short-lived threads (default: 1000)")
    parser.add_argument("--no-stock", action="store_true", help="leave stock TVM out, which takes seconds a run")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    return parser.parse_args()


def _time(table: BenchmarkTable, threads: int) -> Iterator[Row]:
    ratio = table.ratio("onnxruntime")
    why = "; ".join(row.reason for row in table.rows if row.reason)
    ours, other = table.row("tvm_ext").statistics(), table.row("onnxruntime").statistics()
    measured, noisy = why, False
    if ratio is not None:
        rounds = table.round_ratios("onnxruntime")
        least, medians = (f"{1e3 * ours[k]:.2f} / {1e3 * other[k]:.2f} ms" for k in ("min", "median"))
        measured = f"{ratio:.3f} (rounds {min(rounds):.2f} to {max(rounds):.2f}; least {least}, medians {medians})"
        # A scattering ratio is still an answer where every round is on one side of the bar.
        noisy = table.too_noisy("onnxruntime") and max(rounds) > 1.0
    what = f"ResNet-18 f32, batch 1, {threads} threads, no records: time / onnxruntime"
    good = ratio is not None and ratio <= 1.0 and not noisy
    yield Row(what, "1.0 or less", measured + ("; too noisy to tell" if noisy else ""), good, {"ratio": ratio})
    if "tvm" in [row.name for row in table.rows] and (stock := table.ratio("tvm")) is not None:
        yield Row("the same / stock TVM", "(for comparison)", f"{stock:.4f}", True, {"ratio": stock})


def _checked(model: str, artifact: str, threads: int, env: dict[str, str]) -> Iterator[Row]:
    say("error, launches, kernels")
    _, found = fresh([sys.executable, _probe_file(), "check", model, str(threads), artifact], env)
    error = f"{found['of_range']:.1e} (three seeds)"
    good = found["ok"] and found["of_range"] <= 1e-5
    yield Row("error against onnxruntime, of the output range", "1e-5 or less", error, good, found)
    yield Row("launches per inference", "24 or fewer", str(found["launches"]), found["launches"] <= 24)
    generic = found["generic"]
    measured = f"{len(generic)} of {found['kernels']}" + (f": {', '.join(generic)}" if generic else "")
    yield Row("kernels on the generic schedule", "0", measured, not generic)


def _compile(model: str, args: argparse.Namespace, env: dict[str, str]) -> Iterator[Row]:
    say("compiling in fresh processes")
    threads = str(args.threads)
    cold = probes({"cold": ("compile_cold", model, threads)}, min(args.repeats, 3), env)["cold"]
    what = "compile, cold process, imports included"
    yield Row(what, "6 s", f"{cold.median:.2f} s", cold.median <= 6.0, {"seconds": cold.seconds})
    both = {"ours": ("compile_cached", model, threads), "other": ("onnxruntime_start", model, threads)}
    found = probes(both, args.repeats, env)
    yield _cached_row(found["ours"], found["other"])


def _cached_row(ours: Probe, other: Probe) -> Row:
    session, imported = other.answer("session"), ours.answer("import")
    # the interpreter's start is in neither figure of the probe, and is no one's to save
    start = ours.median - imported - ours.answer("compile")
    bar = 1.5 * session + imported + start
    measured = (
        f"{ours.median:.2f} s: start and import {imported + start:.2f} s, from the cache "
        f"{ours.answer('compile'):.3f} s; onnxruntime's session {session:.3f} s"
    )
    details = {"ours": ours.seconds, "onnxruntime": other.seconds, "onnxruntime_import": other.answer("import")}
    bar_text = f"1.5 x onnxruntime's session start + the import = {bar:.2f} s"
    return Row("compile again, from the cache", bar_text, measured, ours.median <= bar, details)


def _load(artifact: str, args: argparse.Namespace, env: dict[str, str]) -> Iterator[Row]:
    say("loading the artifact in fresh processes")
    for what, bar, more in (("full import", 2.0, {}), ("runtime only", 1.2, {"TVM_USE_RUNTIME_LIB": "1"})):
        arguments = ("load_and_run", artifact, what.split()[0])
        found = probes({"load": arguments}, args.repeats, {**env, **more})["load"]
        good = found.median <= bar and all(answer["finite"] for answer in found.answers)
        text = f"{found.median:.2f} s"
        yield Row(f"load and run once, fresh process, {what}", f"{bar} s", text, good, {"seconds": found.seconds})


def _start(args: argparse.Namespace) -> Iterator[Row]:
    import subprocess

    say("tvm-ext --help")
    seconds = []
    for _ in range(args.repeats + 1):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "tvm_ext.cli", "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[1:])
    yield Row("tvm-ext --help", "0.3 s", f"{median:.2f} s", median <= 0.3, {"seconds": seconds[1:]})


def _calls(artifact: str, args: argparse.Namespace, env: dict[str, str]) -> Iterator[Row]:
    say("call overhead")
    found = probes({"call": ("call_overhead", str(args.threads))}, 3, env)["call"]
    least, median = found.answer("microseconds"), found.answer("median_microseconds")
    text = f"{least:.1f} us (median {median:.1f} us)"
    yield Row("call overhead of a one-kernel model, numpy to numpy", "10 us", text, least <= 10.0)
    say(f"{args.calls} calls from {args.calls} threads")
    _, threads = fresh([sys.executable, _probe_file(), "many_threads", artifact, str(args.calls)], env)
    counts = threads["os_threads"]
    # the first waves start the executors: what must not happen is that later ones add to them
    early, last = max(counts[: max(1, len(counts) // 10)]), counts[-1]
    text = f"{early} after {args.calls // 10} calls, {last} after all; {threads['wrong']} wrong"
    what = f"OS threads after {args.calls} calls from {args.calls} short-lived threads; wrong answers"
    yield Row(what, "constant; 0", text, last <= early and threads["wrong"] == 0, {"os_threads": counts})


def _probe_file() -> str:
    return str(pathlib.Path(__file__).with_name("_probes.py"))


if __name__ == "__main__":
    sys.exit(main())
