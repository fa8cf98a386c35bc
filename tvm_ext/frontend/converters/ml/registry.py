"""All converters of ai.onnx.ml."""

from __future__ import annotations

from ..base import Converter
from . import ensembles, features, linear

_FAMILIES = (ensembles, features, linear)
#: Operator of the domain ai.onnx.ml -> converter.
LEARNED: dict[str, Converter] = {op: converter for family in _FAMILIES for op, converter in family.CONVERTERS.items()}
