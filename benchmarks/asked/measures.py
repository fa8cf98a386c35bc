"""How the suite's figures are found: races against onnxruntime and peers, and probes in fresh
processes."""

import pathlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm_ext.benchmarking.benchmark import OURS, REFERENCE, benchmark
from tvm_ext.benchmarking.table import BenchmarkTable
from tvm_ext.verification.arrays import save_npz

from benchmarks.asked.settings import Settings
from benchmarks.common.rows import Unavailable
from benchmarks.measuring.contest import told
from benchmarks.measuring.processes import on_threads, probe, probes
from benchmarks.measuring.reasons import explained
from benchmarks.models.models import MODELS


@dataclass(frozen=True)
class Outcome:
    """What a row found.

    Attributes:
        value: the figure; None if there is none.
        spread: least and largest of the rounds' figures.
        of_range: largest error against onnxruntime, of the output's range; None if the row has no
            outputs.
        text: the absolute figures behind it.
        why: why there is no figure.
        reason: what the profile says of a figure that misses its bar.
        noisy: the rounds scatter too much to tell.
        peers: peer -> its time / onnxruntime's, or why it has none.
        details: plain values for the JSON file.
    """

    value: float | None = None
    spread: tuple[float, float] | None = None
    of_range: float | None = None
    text: str = ""
    why: str = ""
    reason: str = ""
    noisy: bool = False
    peers: dict[str, float | str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


def race(key: str, settings: Settings) -> Outcome:
    """A model against onnxruntime and the peers."""
    model = MODELS[key]
    table = benchmark(
        model.write(settings.folder), (REFERENCE, *settings.peers), settings.threads,
        rounds=settings.rounds, seconds_per_round=settings.seconds, inputs=model.draw(0),
        python=settings.python, progress=told, shapes=model.shapes, records=None,
    )  # fmt: skip
    return of_table(table, settings.peers)


def of_table(table: BenchmarkTable, peers: Sequence[str]) -> Outcome:
    """The outcome of a race."""
    ours, ratios = table.row(OURS), table.round_ratios(REFERENCE)
    shared: dict[str, Any] = {
        "of_range": ours.of_range, "peers": {peer: _peer(table, peer) for peer in peers},
        "details": table.as_dict(),
    }  # fmt: skip
    if not ratios:
        why = "; ".join(f"{row.name}: {row.reason}" for row in table.rows[:2] if row.reason)
        return Outcome(why=why, **shared)
    times = (min(table.row(name).minima) for name in (OURS, REFERENCE))
    return Outcome(
        table.ratio(REFERENCE), (min(ratios), max(ratios)), noisy=table.too_noisy(REFERENCE),
        text=" / ".join(map(milliseconds, times)) + " ms", **shared,
    )  # fmt: skip


def _peer(table: BenchmarkTable, peer: str) -> float | str:
    """The median over rounds of the peer's minimum / onnxruntime's."""
    row, reference = table.row(peer), table.row(REFERENCE)
    if not (row.ok and reference.ok):
        return row.reason or "onnxruntime has no time"
    return statistics.median(a / b for a, b in zip(row.minima, reference.minima, strict=True))


def reason(key: str, settings: Settings) -> str:
    """What the profile of a model says, taken now."""
    model = MODELS[key]
    options = {"shapes": model.shapes}
    return explained(model.write(settings.folder), settings.threads, options, model.draw(0))


def roofs(threads: int) -> dict[str, Any]:
    """What this machine does at most, measured in a process of its own: the fields of the profile's
    roofs."""
    return probe("roofs", threads, env=on_threads(threads))


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    return f"{1e3 * seconds:.3g}"


def bandwidth(key: str, k: int, n: int, settings: Settings) -> Outcome:
    """A dense layer of one row: bytes of weights a second over a plain read's."""
    model = MODELS[key].write(settings.folder)
    shared = settings.threads, settings.rounds, settings.seconds / 2
    answer = probe("bandwidth", model, k * n, *shared, env=on_threads(settings.threads))
    if not answer["ok"]:
        return Outcome(of_range=answer["of_range"], why="outputs disagree", details=answer)
    ratios = [ours / read for ours, read in answer["rounds"]]
    ours, read = (max(column) / 1e9 for column in zip(*answer["rounds"], strict=True))
    return Outcome(
        value=statistics.median(ratios), spread=(min(ratios), max(ratios)),
        of_range=answer["of_range"], text=f"{ours:.1f} / {read:.1f} GB/s", details=answer,
    )  # fmt: skip


def compile_cold(settings: Settings) -> Outcome:
    """Seconds from the start of a process to ResNet-50 compiled."""
    command = ("compile_cold", MODELS["resnet50"].write(settings.folder), settings.threads)
    runs = probes({"cold": command}, settings.repeats, {})["cold"]
    spread, text = (
        (min(runs.seconds), max(runs.seconds)),
        f"median of {len(runs.seconds)} processes",
    )
    return Outcome(runs.median, spread, text=text, details={"seconds": runs.seconds})


def size(key: str, settings: Settings) -> Outcome:
    """Bytes of the exported file over those of the ONNX file."""
    model, artifact = _exported(key, settings)
    ours, theirs = artifact.stat().st_size, model.stat().st_size
    return Outcome(value=ours / theirs, text=f"{ours / 1e6:.1f} / {theirs / 1e6:.1f} MB")


def memory(key: str, settings: Settings) -> Outcome:
    """Most resident memory of a process that loads the artifact and runs once, over one with an
    onnxruntime session."""
    model, artifact = _exported(key, settings)
    inputs, threads = settings.folder / f"{key}.npz", settings.threads
    save_npz(inputs, MODELS[key].inputs(settings.folder))
    ours = probe("peak_of_artifact", artifact, inputs, env=on_threads(threads))["bytes"]
    theirs = probe("peak_of_onnxruntime", model, threads, inputs)["bytes"]
    return Outcome(value=ours / theirs, text=f"{ours / 1e6:.0f} / {theirs / 1e6:.0f} MB")


def scaling(settings: Settings) -> Outcome:
    """How ResNet-18's time falls from one thread to two, over how that of multiply-adds in
    registers does."""
    if settings.threads < 2:
        raise Unavailable("one thread cannot scale")
    model = MODELS["resnet18"].write(settings.folder)
    answer = probe("scaling", model, settings.rounds, settings.seconds / 2, env=on_threads(2))
    ratios = [(two / single) / (loop2 / loop1) for single, two, loop1, loop2 in answer["rounds"]]
    least = [milliseconds(min(column)) for column in zip(*answer["rounds"], strict=True)]
    loop = f"loop {least[3]} / {least[2]} ms ({answer['gflops'][1]:.0f} GFLOP/s)"
    text, spread = f"model {least[1]} / {least[0]} ms, {loop}", (min(ratios), max(ratios))
    return Outcome(statistics.median(ratios), spread, text=text, details=answer)


def _exported(key: str, settings: Settings) -> tuple[pathlib.Path, pathlib.Path]:
    """The model and its artifact, compiled in a process of its own, or taken from this run's
    cache."""
    model, artifact = MODELS[key].write(settings.folder), settings.folder / f"{key}.so"
    if not artifact.exists():
        probe("export", model, settings.threads, MODELS[key].shapes, artifact)
    return model, artifact
