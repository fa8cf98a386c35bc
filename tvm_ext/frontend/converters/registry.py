"""All own converters; these go before the stock ones."""

from __future__ import annotations

from . import (
    activations,
    casts,
    contributed,
    division,
    einsum,
    elementwise,
    fourier,
    fused,
    indexing,
    layout,
    matrices,
    ngrams,
    normalization,
    pooling,
    quantize,
    quantized,
    recurrent,
    reductions,
    resize,
    rows,
    sampling,
    scatters,
    sorting,
    windows,
)
from .base import Converter

_FAMILIES = (
    activations, casts, division, einsum, elementwise, fourier, indexing, layout, matrices, ngrams, normalization,
    pooling, quantize, quantized, recurrent, reductions, resize, rows, sampling, scatters, sorting, windows,
)  # fmt: skip
#: Operator of the standard domain -> converter.
CONVERTERS: dict[str, Converter] = {
    operator: converter for family in _FAMILIES for operator, converter in family.CONVERTERS.items()
}
#: Operator of the domain com.microsoft -> converter.
CONTRIBUTED: dict[str, Converter] = {**contributed.CONTRIBUTED, **fused.CONTRIBUTED}
