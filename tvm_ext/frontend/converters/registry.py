"""All own converters; these go before the stock ones."""

from __future__ import annotations

from . import (
    activations,
    casts,
    contributed,
    division,
    elementwise,
    fourier,
    fused,
    indexing,
    layout,
    matrices,
    ngrams,
    normalization,
    quantize,
    quantized,
    recurrent,
    reductions,
    resize,
    rows,
    scatters,
    sorting,
    windows,
)
from .base import Converter

_FAMILIES = (
    activations, casts, division, elementwise, fourier, indexing, layout, matrices, ngrams, normalization, quantize,
    quantized, recurrent, reductions, resize, rows, scatters, sorting, windows,
)  # fmt: skip
#: Operator of the standard domain -> converter.
CONVERTERS: dict[str, Converter] = {
    operator: converter for family in _FAMILIES for operator, converter in family.CONVERTERS.items()
}
#: Operator of the domain com.microsoft -> converter.
CONTRIBUTED: dict[str, Converter] = {**contributed.CONTRIBUTED, **fused.CONTRIBUTED}
