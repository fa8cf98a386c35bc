"""Chains of equal convolutions, each with weights of its own: no cache keeps them from one call to
the next, as in a model. What counts is how near a chain comes to a roof: its bytes a second over a
plain read's of as many bytes, or its multiply-adds over the machine's, whichever part is larger."""

import statistics
from dataclasses import dataclass
from typing import Any

from tvm_ext.frontend.zoo.builder import GraphBuilder

from benchmarks.asked.settings import Settings
from benchmarks.common.rows import Row
from benchmarks.measuring.processes import on_threads, probe
from benchmarks.measuring.reasons import explained
from benchmarks.models.models import Model, of_graph

#: The part of a roof that a chain shall reach.
BAR = 0.85


@dataclass(frozen=True)
class Chain:
    """`count` convolutions 3x3 of `channels` channels on a square image of `size` pixels a side,
    each with a ReLU."""

    count: int
    channels: int
    size: int

    @property
    def title(self) -> str:
        kind = f"conv 3x3, {self.channels} channels, {self.size}x{self.size}"
        return f"{self.count} x {kind}"

    def model(self) -> Model:
        """The chain as an ONNX model of one input."""

        def build(g: GraphBuilder) -> Any:
            x = g.input("input", (1, self.channels, self.size, self.size))
            for at in range(self.count):
                x = g.relu(g.conv(x, f"conv{at}", self.channels, kernel=3, pad=1), f"relu{at}")
            return x

        name = f"chain{self.count}_conv3x3_{self.channels}_{self.size}"
        return of_graph(self.title, name, build)


#: Weights of 75 and 28 MB, several times any L2.
CHAINS = (Chain(8, 512, 7), Chain(12, 256, 14))


def measured(chain: Chain, precision: str, settings: Settings) -> Row:
    """The row of a chain; in bf16 only its bytes are told, since the peak of its instruction is not
    measured here.

    Args:
        chain: to time.
        precision: "f32" or "bf16".
        settings: how to time.
    """
    path, threads = chain.model().write(settings.folder), settings.threads
    options = {} if precision == "f32" else {"precision": precision}
    limits = threads, settings.rounds, settings.seconds
    answer = probe("stream", path, *limits, options, env=on_threads(threads))
    row = row_of(chain, precision, answer)
    if row.met is False and answer["ok"]:
        row.details["reason"] = explained(path, threads, options, {})
    return row


def row_of(chain: Chain, precision: str, answer: dict[str, Any]) -> Row:
    """The row of what the probe `stream` found."""
    what = f"{chain.title}, {precision}, cold weights: part of the nearer roof"
    float32 = precision == "f32"
    bar = f"{BAR:g} or more" if float32 else "(told)"
    if float32 and not answer["ok"]:
        return Row(what, bar, "outputs disagree", False, answer)
    moved, read_bytes, done, operations = (
        answer[key] for key in ("bytes", "read_bytes", "executed", "operations")
    )
    parts = [
        (moved / ours / (read_bytes / read), done / ours / (operations / fma))
        for ours, read, fma in answer["rounds"]
    ]
    of_read, of_peak = (statistics.median(column) for column in zip(*parts, strict=True))
    value = statistics.median(max(pair) if float32 else pair[0] for pair in parts)
    ours, read, fma = (min(column) for column in zip(*answer["rounds"], strict=True))
    rates = f"{moved / ours / 1e9:.1f} / {read_bytes / read / 1e9:.1f} GB/s"
    texts = [f"{value:.3f} ({of_read:.2f} of a read, {rates}"]
    if float32:
        rates = f"{done / ours / 1e9:.0f} / {operations / fma / 1e9:.0f} GFLOP/s"
        texts.append(f"{of_peak:.2f} of the multiply-adds, {rates}")
    text = "; ".join([*texts, f"{1e3 * ours:.3g} ms", f"{', '.join(answer['recipes'])})"])
    return Row(what, bar, text, value >= BAR if float32 else None, {**answer, "value": value})
