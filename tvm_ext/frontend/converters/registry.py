"""All own converters; these go before the stock ones."""

from __future__ import annotations

from . import (
    activations,
    casts,
    division,
    einsum,
    elementwise,
    fourier,
    layout,
    matrices,
    normalization,
    quantize,
    quantized,
    recurrent,
    reductions,
)
from .base import Converter
from .images import pooling, resize, sampling, windows
from .microsoft.registry import CONTRIBUTED, INTERNAL
from .ml.registry import LEARNED
from .selection import indexing, ngrams, rows, scatters, sorting

_FAMILIES = (
    activations, casts, division, einsum, elementwise, fourier, indexing, layout, matrices, ngrams, normalization,
    pooling, quantize, quantized, recurrent, reductions, resize, rows, sampling, scatters, sorting, windows,
)  # fmt: skip
#: Operator of the standard domain -> converter.
CONVERTERS: dict[str, Converter] = {
    operator: converter for family in _FAMILIES for operator, converter in family.CONVERTERS.items()
} | INTERNAL
#: The domain whose converters are told its own version; others are told that of the standard domain.
ML = "ai.onnx.ml"
#: Domain beside the standard one -> operator -> converter.
FOREIGN: dict[str, dict[str, Converter]] = {**CONTRIBUTED, ML: LEARNED}
