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
from .rows import converter_of_row
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


def own_converter(op_type: str, domain: str = "") -> Converter | None:
    """The converter of an operator that goes before TVM's: written for it, or made of its row in the table of
    operators; None if there is none."""
    written = FOREIGN.get(domain, CONVERTERS).get(op_type)
    return converter_of_row(op_type) if written is None and domain not in FOREIGN else written
