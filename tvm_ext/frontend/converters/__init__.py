"""Converters for ONNX operators that TVM's importer lacks, gets wrong, or converts in a way that costs something."""

from .base import one_or_all as one_or_all
from .precision import InFloat32 as InFloat32
from .precision import is_narrow as is_narrow
from .precision import unread as unread
from .registry import CONVERTERS as CONVERTERS
from .registry import FOREIGN as FOREIGN
from .registry import ML as ML
from .rows import own_converter as own_converter
from .selection.bounds import in_bounds as in_bounds
