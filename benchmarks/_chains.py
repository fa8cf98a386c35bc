"""Chains of equal convolutions, each with weights of its own: no cache keeps them from one call to the next, as in a
model. What counts is how near a chain comes to a roof: its bytes a second over a plain read's of as many bytes, or its
multiply-adds over the machine's, whichever part is larger."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import Any

from _common import Row, probe
from _measures import Settings
from _models import Model, of_graph
from _reasons import explained

from tvm_ext.frontend.zoo.builder import GraphBuilder

#: The part of a roof that a chain shall reach.
BAR = 0.85


@dataclass(frozen=True)
class Chain:
    """`count` convolutions 3x3 of `channels` channels on a square image of `size` pixels a side, each with a ReLU."""

    count: int
    channels: int
    size: int

    @property
    def title(self) -> str:
        return f"{self.count} x conv 3x3, {self.channels} channels, {self.size}x{self.size}"

    def model(self) -> Model:
        """The chain as an ONNX model of one input."""

        def build(g: GraphBuilder) -> Any:
            x = g.input("input", (1, self.channels, self.size, self.size))
            for at in range(self.count):
                x = g.relu(g.conv(x, f"conv{at}", self.channels, kernel=3, pad=1), f"relu{at}")
            return x

        return of_graph(f"chain{self.count}_conv3x3_{self.channels}_{self.size}", build)


#: Weights of 75 and 28 MB, several times any L2.
CHAINS = (Chain(8, 512, 7), Chain(12, 256, 14))


def measured(chain: Chain, precision: str, settings: Settings) -> Row:
    """The row of a chain; in bf16 only its bytes are told, since the peak of its instruction is not measured here.

    Args:
        chain: to time.
        precision: "f32" or "bf16".
        settings: how to time.
    """
    path, options = chain.model().write(settings.folder), {} if precision == "f32" else {"precision": precision}
    env = {"TVM_NUM_THREADS": str(settings.threads)}
    found = probe("stream", path, settings.threads, settings.rounds, settings.seconds, json.dumps(options), env=env)
    row = row_of(chain, precision, found)
    if row.met is False and found["ok"]:
        row.details["reason"] = explained(path, settings.threads, options, {})
    return row


def row_of(chain: Chain, precision: str, found: dict[str, Any]) -> Row:
    """The row of what the probe `stream` found."""
    what, float32 = f"{chain.title}, {precision}, cold weights: part of the nearer roof", precision == "f32"
    bar = f"{BAR:g} or more" if float32 else "(told)"
    if float32 and not found["ok"]:
        return Row(what, bar, "outputs disagree", False, found)
    parts = [
        (found["bytes"] / ours / (found["read_bytes"] / read), found["executed"] / ours / (found["operations"] / fma))
        for ours, read, fma in found["rounds"]
    ]
    of_read, of_peak = (statistics.median(column) for column in zip(*parts, strict=True))
    value = statistics.median(max(pair) if float32 else pair[0] for pair in parts)
    ours, read, fma = (min(column) for column in zip(*found["rounds"], strict=True))
    text = (
        f"{value:.3f} ({of_read:.2f} of a read, {found['bytes'] / ours / 1e9:.1f} / "
        f"{found['read_bytes'] / read / 1e9:.1f} GB/s"
    )
    if float32:
        rates = (found["executed"] / ours / 1e9, found["operations"] / fma / 1e9)
        text += f"; {of_peak:.2f} of the multiply-adds, {rates[0]:.0f} / {rates[1]:.0f} GFLOP/s"
    text += f"; {1e3 * ours:.3g} ms; {', '.join(found['recipes'])})"
    return Row(what, bar, text, value >= BAR if float32 else None, {**found, "value": value})
