"""All converters of onnxruntime's own operators, by domain."""

from __future__ import annotations

from ..base import Converter
from . import (
    activations,
    attention,
    blocks,
    grouped,
    matrices,
    nchwc,
    normalization,
    paged,
    quantized,
    recurrent,
    rotary,
    standard,
)

_FAMILIES = (
    activations, attention, blocks, grouped, matrices, normalization, paged, quantized, recurrent, rotary, standard,
)  # fmt: skip
#: Domain -> operator -> converter.
CONTRIBUTED: dict[str, dict[str, Converter]] = {
    "com.microsoft": {op: converter for family in _FAMILIES for op, converter in family.CONVERTERS.items()},
    "com.microsoft.nchwc": nchwc.CONVERTERS,
}
#: Operator of onnxruntime in the standard domain -> converter.
INTERNAL = normalization.INTERNAL
