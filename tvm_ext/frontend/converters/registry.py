"""All own converters; these go before the stock ones."""

from __future__ import annotations

from . import (
    casts,
    elementwise,
    indexing,
    layout,
    matrices,
    ngrams,
    normalization,
    quantized,
    recurrent,
    reductions,
    resize,
    rows,
    windows,
)
from .base import Converter

_FAMILIES = (
    casts, elementwise, indexing, layout, matrices, ngrams, normalization, quantized, recurrent, reductions, resize,
    rows, windows,
)  # fmt: skip
#: Operator of the standard domain -> converter.
CONVERTERS: dict[str, Converter] = {
    operator: converter for family in _FAMILIES for operator, converter in family.CONVERTERS.items()
}
