"""The result of `quantize`: the model, how it was made, and how accurate it is; as text, Markdown and plain values."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verification.arrays import write_whole
from .accuracy import LayerAccuracy
from .settings import QuantizeSettings

if TYPE_CHECKING:
    import onnx

TITLES = ("nodes", "operator", "computed in", "result", "SQNR dB", "error of range", "cosine")


@dataclass(frozen=True)
class QuantizeResult:
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
        return {
            "model": self.name, "settings": self.settings.as_dict(), "quantized": self.quantized,
            "samples": self.samples, "compared": self.compared, "bytes": list(self.size), "notes": list(self.notes),
            "outputs": [row.as_dict() for row in self.outputs], "layers": [row.as_dict() for row in self.layers],
            "left": [{"node": node, "operator": operator, "reason": why} for node, operator, why in self.left],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(TITLES))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.heading, *lines, *self.closing()])

    def markdown(self) -> str:
        """The report in GitHub's Markdown."""
        head, *body = ["| " + " | ".join(c.replace("|", "/") for c in row) + " |" for row in self._rows()]
        notes = [f"- {line}" for line in self.closing()]
        return "\n".join([self.heading, "", head, "|" + " --- |" * len(TITLES), *body, "", *notes, ""])

    @property
    def heading(self) -> str:
        """Model and settings, in a line."""
        one = self.settings
        how = f"percentile {one.percentile:g}" if one.method == "percentile" else one.method
        bits = "7" if one.reduce_range else "8"
        weights = f"{bits}-bit weights, a scale a {'channel' if one.per_channel else 'tensor'}"
        return f"{self.name}: {one.activations} activations by {how} of {self.samples} samples, {weights}"

    def closing(self) -> list[str]:
        """What no row says: outputs, the worst layers, what is left in float32 and why, notes."""
        lines = [f"{self.quantized} nodes quantized, {len(self.left)} of those that make floats left in float32"]
        lines += [f"  {count} {operator}: {why}" for (operator, why), count in self._left().items()]
        lines += [f"output {row.value}: {_figures(row)}" for row in self.outputs]
        if self.worst:
            lines.append("least SQNR: " + ", ".join(f"{row.nodes[0]} ({_db(row.sqnr)} dB)" for row in self.worst))
        small, large = min(self.size), max(self.size)
        if small:
            lines.append(f"{self.size[0] / 1e6:.1f} MB -> {self.size[1] / 1e6:.1f} MB ({large / small:.2f} times)")
        return [*lines, *(f"note: {note}" for note in self.notes), f"errors are those of {self.compared} samples"]

    def _rows(self) -> Sequence[tuple[str, ...]]:
        """What is quantized, and the outputs: a transformer has ten times as many values beside these."""
        return [TITLES, *(cells(row) for row in self.layers if row.output or not row.reason)]

    def _left(self) -> dict[tuple[str, str], int]:
        """(operator, reason) -> how many."""
        return dict(Counter((operator, why) for _, operator, why in self.left))


def cells(row: LayerAccuracy) -> tuple[str, ...]:
    """A row as text, under :data:`TITLES`."""
    return (
        " + ".join(row.nodes), row.operator, "float32" if row.reason else "int8", row.dtype, _db(row.sqnr),
        f"{row.of_range:.2e}", f"{row.cosine:.6f}",
    )  # fmt: skip


def _figures(row: LayerAccuracy) -> str:
    return f"SQNR {_db(row.sqnr)} dB, largest error {row.of_range:.2e} of the range, cosine {row.cosine:.6f}"


def _db(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "exact" if value > 0 else "-inf"
