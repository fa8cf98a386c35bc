"""The result of `quantize`: the model, how it was made, and how accurate it is; as text, Markdown and plain values."""

import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import onnx

from ..core.pages.page import Fold, Note, Part, Shown
from ..runtime.files import write_whole
from ..runtime.table import Cell, Column, Table, Value, plain_named
from .accuracy import LayerAccuracy
from .settings import QuantizeSettings

COLUMNS = (
    "nodes", "operator", "computed in", "result", Column("SQNR", "dB"), Column("error of range", form=".2e"),
    Column("cosine", form=".6f"),
)  # fmt: skip
#: A layer below this is worth a look: its noise is a tenth of its signal, in amplitude.
LOW_SQNR = 20.0


@dataclass(frozen=True)
class QuantizeResult(Shown):
    """A quantized model and its report.

    Attributes:
        name: of the model it was made of.
        model: the QDQ model; `tvm_ext.compile` and onnxruntime take it.
        settings: how it was made; `reduce_range` is decided.
        layers: a row for each float value that both models have, in the order they are computed.
        left: (node, operator, why) of nodes that make floats and stay in float32.
        quantized: how many nodes are quantized.
        samples: how many calibration samples there were.
        compared: how many of them the rows are of.
        notes: what was changed or noticed on the way.
        size: bytes of the float32 model and of this one.
    """

    name: str
    model: onnx.ModelProto
    settings: QuantizeSettings
    layers: tuple[LayerAccuracy, ...]
    left: tuple[tuple[str, str, str], ...]
    quantized: int
    samples: int
    compared: int
    notes: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)

    @property
    def outputs(self) -> tuple[LayerAccuracy, ...]:
        """Rows of the model's outputs."""
        return tuple(row for row in self.layers if row.output)

    @property
    def worst(self) -> tuple[LayerAccuracy, ...]:
        """Up to five layers of least SQNR, the worst first: candidates for `exclude`."""
        return tuple(sorted((row for row in self.layers if not row.reason), key=lambda row: row.sqnr)[:5])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, whole or not at all.

        Raises:
            ToolError: the file cannot be written.
        """
        data = self.model.SerializeToString(deterministic=True)
        write_whole(path, lambda stream: stream.write(data))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the model."""
        names = ("settings", "quantized", "samples", "compared", "notes", "outputs", "layers")
        left = [{"node": node, "operator": operator, "reason": why} for node, operator, why in self.left]
        return {"model": self.name, "bytes": list(self.size), **plain_named(self, *names), "left": left}

    def parts(self) -> list[Part]:
        """What is quantized, and the outputs; on a page every layer, and what stays in float32 with the reason.

        A transformer has ten times as many values beside those that text shows.
        """
        shown = [row for row in self.layers if row.output or not row.reason]
        others = [row for row in self.layers if row.reason and not row.output]
        folds = [
            (f"{len(others)} values stay in float32", Table(COLUMNS, map(_row, others))),
            (f"{len(self.left)} nodes stay in float32", Table(("node", "operator", "why"), self.left)),
        ]
        return [
            Note(self.heading), *([Table(COLUMNS, map(_row, shown))] if shown else []), *map(Note, self.closing()),
            *(Fold(title, [table]) for title, table in folds if table.rows),
        ]  # fmt: skip

    @property
    def heading(self) -> str:
        """Model and settings, in a line."""
        settings = self.settings
        if settings.weights:
            scales = f"a scale for each {settings.block} inputs"
            return f"{self.name}: weights of {settings.weights}, {scales}; float32 activations"
        how = f"percentile {settings.percentile:g}" if settings.method == "percentile" else settings.method
        bits = "7" if settings.reduce_range else "8"
        weights = f"{bits}-bit weights, a scale a {'channel' if settings.per_channel else 'tensor'}"
        return f"{self.name}: {settings.activations} activations by {how} of {self.samples} samples, {weights}"

    def closing(self) -> list[str]:
        """What no row says: outputs, the worst layers, what is left in float32 and why, notes."""
        lines = [f"{self.quantized} nodes quantized, {len(self.left)} of those that make floats left in float32"]
        reasons = Counter((operator, why) for _, operator, why in self.left)
        lines += [f"  {count} {operator}: {why}" for (operator, why), count in reasons.items()]
        lines += [f"output {row.value}: {_figures(row)}" for row in self.outputs]
        if self.worst:
            lines.append("least SQNR: " + ", ".join(f"{row.nodes[0]} ({_db(row.sqnr)} dB)" for row in self.worst))
        small, large = min(self.size), max(self.size)
        if small:
            lines.append(f"{self.size[0] / 1e6:.1f} MB -> {self.size[1] / 1e6:.1f} MB ({large / small:.2f} times)")
        lines += [f"note: {note}" for note in self.notes]
        return [*lines, *([f"errors are those of {self.compared} samples"] if self.compared else [])]


def _row(row: LayerAccuracy) -> tuple[Value, ...]:
    sqnr = Cell(_db(row.sqnr), row.sqnr, tone="warn" if row.sqnr < LOW_SQNR else "")
    where = Cell("float32", tone="dim", title=row.reason) if row.reason else "int8"
    error = Cell(row.of_range, share=min(1.0, row.of_range))
    return " + ".join(row.nodes), row.operator, where, row.dtype, sqnr, error, row.cosine


def _figures(row: LayerAccuracy) -> str:
    return f"SQNR {_db(row.sqnr)} dB, largest error {row.of_range:.2e} of the range, cosine {row.cosine:.6f}"


def _db(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "exact" if value > 0 else "-inf"
