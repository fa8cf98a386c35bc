"""How the suite's figures are found: races against onnxruntime and peers, and probes in fresh processes."""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from _common import Unavailable, probe, probes, say
from _models import MODELS, Model
from _reasons import explained

from tvm_ext.benchmarking.benchmark import OURS, REFERENCE, benchmark
from tvm_ext.benchmarking.table import BenchmarkTable
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.frontend.reading.shapes import input_specs
from tvm_ext.verification.arrays import save_npz


@dataclass(frozen=True)
class Settings:
    """What all rows share.

    Attributes:
        folder: for models, artifacts and the compile cache of this run.
        threads: of every contender.
        rounds: interleaved rounds.
        seconds: of a contender in a round.
        repeats: fresh processes of a probe.
        peers: other contenders.
        python: where they are installed; see `tvm_ext.benchmark`.
    """

    folder: pathlib.Path
    threads: int = 2
    rounds: int = 9
    seconds: float = 0.5
    repeats: int = 3
    peers: tuple[str, ...] = ()
    python: str | Mapping[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a row found.

    Attributes:
        value: the figure; None if there is none.
        spread: least and largest of the rounds' figures.
        of_range: largest error against onnxruntime, of the output's range; None if the row has no outputs.
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
        model.write(settings.folder), (REFERENCE, *settings.peers), settings.threads, rounds=settings.rounds,
        seconds_per_round=settings.seconds, inputs=model.inputs(), python=settings.python, progress=_told,
        shapes=model.shapes, records=None,
    )  # fmt: skip
    return of_table(table, settings.peers)


def _told(text: str) -> None:
    """Progress, without a line for each round."""
    if not text.startswith("round"):
        say(text)


def of_table(table: BenchmarkTable, peers: Sequence[str]) -> Outcome:
    """The outcome of a race."""
    ours, ratios = table.row(OURS), table.round_ratios(REFERENCE)
    found: dict[str, float | str] = {peer: _peer(table, peer) for peer in peers}
    if not ratios:
        why = "; ".join(f"{row.name}: {row.reason}" for row in table.rows[:2] if row.reason)
        return Outcome(of_range=ours.of_range, why=why, peers=found, details=table.as_dict())
    times = (min(table.row(name).minima) for name in (OURS, REFERENCE))
    return Outcome(
        value=table.ratio(REFERENCE), spread=(min(ratios), max(ratios)), of_range=ours.of_range,
        text=" / ".join(map(milliseconds, times)) + " ms", noisy=table.too_noisy(REFERENCE), peers=found,
        details=table.as_dict(),
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
    return explained(model.write(settings.folder), settings.threads, {"shapes": dict(model.shapes)}, model.inputs())


def roofs(threads: int) -> dict[str, Any]:
    """What this machine does at most, measured in a process of its own: the fields of the profile's roofs."""
    return probe("roofs", threads, env={"TVM_NUM_THREADS": str(threads)})


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    return f"{1e3 * seconds:.3g}"


def bandwidth(key: str, k: int, n: int, settings: Settings) -> Outcome:
    """A dense layer of one row: bytes of weights a second over a plain read's."""
    model = MODELS[key].write(settings.folder)
    found = probe("bandwidth", model, k * n, settings.threads, settings.rounds, settings.seconds / 2,
                  env=_threads(settings))  # fmt: skip
    if not found["ok"]:
        return Outcome(of_range=found["of_range"], why="outputs disagree", details=found)
    ratios = [ours / read for ours, read in found["rounds"]]
    ours, read = (max(column) / 1e9 for column in zip(*found["rounds"], strict=True))
    return Outcome(
        value=statistics.median(ratios), spread=(min(ratios), max(ratios)), of_range=found["of_range"],
        text=f"{ours:.1f} / {read:.1f} GB/s", details=found,
    )  # fmt: skip


def compile_cold(settings: Settings) -> Outcome:
    """Seconds from the start of a process to ResNet-50 compiled."""
    model = str(MODELS["resnet50"].write(settings.folder))
    runs = probes({"cold": ("compile_cold", model, str(settings.threads))}, settings.repeats, {})["cold"]
    spread = (min(runs.seconds), max(runs.seconds))
    text = f"median of {len(runs.seconds)} processes"
    return Outcome(value=runs.median, spread=spread, text=text, details={"seconds": runs.seconds})


def size(key: str, settings: Settings) -> Outcome:
    """Bytes of the exported file over those of the ONNX file."""
    model, artifact = _exported(key, settings)
    ours, theirs = artifact.stat().st_size, model.stat().st_size
    return Outcome(value=ours / theirs, text=f"{ours / 1e6:.1f} / {theirs / 1e6:.1f} MB")


def memory(key: str, settings: Settings) -> Outcome:
    """Most resident memory of a process that loads the artifact and runs once, over one with an onnxruntime session."""
    model, artifact = _exported(key, settings)
    inputs = settings.folder / f"{key}.npz"
    save_npz(inputs, _feeds(MODELS[key], model))
    ours = probe("peak_of_artifact", artifact, inputs, env=_threads(settings))["bytes"]
    theirs = probe("peak_of_onnxruntime", model, settings.threads, inputs)["bytes"]
    return Outcome(value=ours / theirs, text=f"{ours / 1e6:.0f} / {theirs / 1e6:.0f} MB")


def scaling(settings: Settings) -> Outcome:
    """How ResNet-18's time falls from one thread to two, over how that of multiply-adds in registers does."""
    if settings.threads < 2:
        raise Unavailable("one thread cannot scale")
    model = MODELS["resnet18"].write(settings.folder)
    found = probe("scaling", model, settings.rounds, settings.seconds / 2, env={"TVM_NUM_THREADS": "2"})
    ratios = [(model2 / model1) / (loop2 / loop1) for model1, model2, loop1, loop2 in found["rounds"]]
    model1, model2, loop1, loop2 = (min(column) for column in zip(*found["rounds"], strict=True))
    text = (
        f"model {milliseconds(model2)} / {milliseconds(model1)} ms, loop {milliseconds(loop2)} / "
        f"{milliseconds(loop1)} ms ({found['gflops'][1]:.0f} GFLOP/s)"
    )
    return Outcome(statistics.median(ratios), (min(ratios), max(ratios)), text=text, details=found)


def _exported(key: str, settings: Settings) -> tuple[pathlib.Path, pathlib.Path]:
    """The model and its artifact, compiled in a process of its own, or taken from this run's cache."""
    model = MODELS[key].write(settings.folder)
    artifact = settings.folder / f"{key}.so"
    if not artifact.exists():
        probe("export", model, settings.threads, json.dumps(dict(MODELS[key].shapes)), artifact)
    return model, artifact


def _feeds(model: Model, path: pathlib.Path) -> dict[str, Any]:
    source = read_model(path)
    specs = input_specs(source.proto.graph, dict(model.shapes), source.name)
    return {**seeded_inputs(specs), **model.inputs()}


def _threads(settings: Settings) -> dict[str, str]:
    return {"TVM_NUM_THREADS": str(settings.threads)}
