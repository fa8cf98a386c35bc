"""Precision of products: what was decided about each convolution and matmul, and how far rounding may lead outputs.

bfloat16 is the upper half of a float32: 8 bits of significand, the same exponents. float16 has 11 bits and numbers up
to 65504: what is larger is rounded to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.plain import read
from ...runtime.table import Plain
from ..errors import OptionError, is_number

if TYPE_CHECKING:
    import numpy as np

#: Choice of `precision` that rounds -> the dtype that tensors are stored in.
STORED_IN = {"bf16": "bfloat16", "fp16": "float16"}
PRECISIONS = ("float32", *STORED_IN)
#: Floats that tensors are stored in, but that nothing is computed in: an `astype` decodes or encodes them.
NARROW_FLOATS = frozenset(STORED_IN.values())

#: Half the distance from 1 to the next number: the largest relative error of a rounding.
UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}

#: Why a layer that the caller names keeps float32.
BY_HAND = "kept by hand"
NEEDS_PRECISION = "give precision='bf16' or 'fp16' with it"

Kept = tuple[tuple[str, str], ...]
"""ONNX nodes that keep float32, and why, sorted by name."""


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array in bfloat16 or float16: the nearest, of two equally near ones the even one."""
    import ml_dtypes
    import numpy as np

    with np.errstate(over="ignore"):
        return array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@dataclass(frozen=True)
class Layer:
    """What was decided about one convolution, matmul or attention.

    Attributes:
        nodes: ONNX nodes that it computes.
        operator: such as "conv2d".
        precision: "bf16", "fp16" or "float32".
        why: it has this one.
        error: of the outputs' range, when it alone is rounded; None if that was not measured.
    """

    nodes: tuple[str, ...]
    operator: str
    precision: str
    why: str
    error: float | None = None


@dataclass(frozen=True)
class PrecisionPlan(Plain):
    """What precision="bf16" or "fp16" came to.

    Attributes:
        precision: "bf16" or "fp16".
        layers: each product of the model, in order.
        depth: the most rounded products that stand behind one another.
        max_error: the bound that was asked for, of an output's range; None if none was.
        measured: error of all rounded layers together in the sensitivity run; None without one.
    """

    precision: str
    layers: tuple[Layer, ...]
    depth: int
    max_error: float | None = None
    measured: float | None = None

    derived = ("kept", "tolerance")

    @property
    def tolerance(self) -> float | None:
        """How far outputs may be from those in float32, of their range; None if nothing is rounded.

        Each layer rounds what it reads and writes by a unit roundoff of the value at most, with either sign: behind
        one another the layers add up as the root of their number. A bound that was asked for is the tolerance itself.
        """
        if not self.depth:
            return None
        rounding = UNIT_ROUNDOFF[STORED_IN[self.precision]] * math.sqrt(self.depth)
        return rounding if self.max_error is None else self.max_error

    @property
    def kept(self) -> dict[str, str]:
        """An ONNX node of each product that keeps float32, and why: as `keep_float32` takes them."""
        return {layer.nodes[0]: layer.why for layer in self.layers if layer.precision == "float32" and layer.nodes}

    @classmethod
    def of_dict(cls, state: Mapping[str, Any]) -> PrecisionPlan:
        """The inverse of :meth:`as_dict`."""
        return read(cls, state)


def checked_kept(value: Any) -> Kept:
    """The option `keep_float32`: names, or names with reasons.

    Raises:
        OptionError: it is neither.
    """
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    try:
        if isinstance(value, str):
            raise TypeError
        reasons: dict[Any, Any] = dict(
            (node, BY_HAND) if isinstance(node, str) else tuple(node) for node in pairs or ()
        )
        if not all(isinstance(text, str) for pair in reasons.items() for text in pair):
            raise TypeError
    except (TypeError, ValueError):
        wrong = f"keep_float32={value!r}: names of ONNX nodes are needed, or a mapping of names to reasons"
        raise OptionError(wrong, fix="for example keep_float32=['/conv1/Conv']") from None
    return tuple(sorted(reasons.items()))


def checked_error(max_error: Any, precision: str) -> float | None:
    """The option `max_error`.

    Raises:
        OptionError: it is no share of a range, or stands with precision="float32".
    """
    if max_error is None:
        return None
    if not is_number(max_error) or not 0.0 < max_error <= 1.0:
        wrong = f"max_error={max_error!r}: a share of an output's range is needed, above 0 and at most 1"
        raise OptionError(wrong, fix="max_error=0.01 is one per cent of the range")
    if precision == "float32":
        raise OptionError(f"max_error={max_error!r} with precision='float32'", fix=NEEDS_PRECISION)
    return float(max_error)
