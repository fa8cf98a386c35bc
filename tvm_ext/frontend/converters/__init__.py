"""Converters for ONNX operators that TVM's importer lacks, gets wrong, or converts in a way that costs something."""

from .precision import in_float32 as in_float32
from .registry import CONVERTERS as CONVERTERS
