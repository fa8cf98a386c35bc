"""A quantized model's report as parts of a page, and what a notebook shows of it."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from ..quantization.accuracy import LayerAccuracy
from ..quantization.result import QuantizeResult
from .markup import Cell, Markup, Value, fold, note, table
from .page import fragment

TITLES = ("nodes", "operator", "computed in", "result", "SQNR dB", "error of range", "cosine")
NUMERIC = ("SQNR dB", "error of range", "cosine")
#: A layer below this is worth a look: its noise is a tenth of its signal, in amplitude.
LOW_SQNR = 20.0


def quantization_parts(result: QuantizeResult) -> list[Markup]:
    """What was done, a row a layer, and what stays in float32 with the reason."""
    left: list[list[Value]] = [list(row) for row in result.left]
    parts = [note(result.heading), *(note(line) for line in result.closing() if not line.startswith(" "))]
    parts.append(table(TITLES, [_row(row) for row in result.layers], NUMERIC, "against float32, in a plain run"))
    if left:
        parts.append(fold(f"{len(left)} nodes stay in float32", table(("node", "operator", "why"), left)))
    return parts


def _row(row: LayerAccuracy) -> list[Value]:
    low = row.sqnr < LOW_SQNR
    exact = row.sqnr == math.inf
    sqnr = Cell("exact" if exact else f"{row.sqnr:.1f}", row.sqnr, tone="warn" if low else "")
    where = Cell("float32", tone="dim", title=row.reason) if row.reason else "int8"
    error = Cell(f"{row.of_range:.2e}", row.of_range, share=min(1.0, row.of_range))
    return [" + ".join(row.nodes), row.operator, where, row.dtype, sqnr, error, Cell(f"{row.cosine:.6f}", row.cosine)]


class _Shown(QuantizeResult):
    def _repr_html_(self) -> str:
        return fragment(*quantization_parts(self))


def shown(result: QuantizeResult) -> QuantizeResult:
    """The same result, which a notebook shows as a page; `quantization` stands below this room and has no pages."""
    given: dict[str, Any] = {one.name: getattr(result, one.name) for one in fields(result)}
    return _Shown(**given)
