"""Whether a candidate computes what the unscheduled function does: the error that rounding may make, and comparing.

Tolerances are parts of the output's range. Two sums of n float32 products, in different orders, differ by some
sqrt(n) u of the sum of magnitudes (u = 2^-24; N. J. Higham and T. Mary, "A new approach to probabilistic rounding error
analysis", SISC 2019: a factor of 6 holds for all but one sum in 10^7). Of normal values those magnitudes sum to 0.64 n
and the results range over 8 sqrt(n) and more; so the difference is about n u of the range, and this is the tolerance:

    (n + 64) u        n: lengths of all sums of the function; 64 for its epilogue
    at least 1e-4     for recipes that transform the sums (Winograd)
    + r u'            of a narrow float of unit roundoff u', rounded r times on the way: sums that differ fall to either
                      side of a tie

A term left out changes results by 1 / (8 sqrt(n)) of the range, which is a hundred times as much. Floats that are
quantized to bytes fall to either side of a tie too: some few may be off by one. All other integers must be equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock

from ...core.graph.nodes import kernels_of, nodes_of
from ...core.group import SUMS
from ...core.numbers.precision import UNIT_ROUNDOFF
from ...verification import metrics
from .dtypes import is_float

#: Largest error of a recipe that transforms the sums, as a part of the output's range.
TRANSFORMED = 1e-4
#: Unit roundoff of the type that sums of a dtype are computed in.
_UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-24}
#: What floats are quantized to.
BYTES = ("int8", "uint8")
#: One in so many elements may stand at a tie: sums of thousands of terms err by less than 0.01 steps of 256.
_TIES = 64
_EPILOGUE = 64
_REDUCE = 2


@dataclass(frozen=True)
class Rounding:
    """What a function rounds on its way.

    Attributes:
        length: of all its sums, one behind the other.
        exact: whether kernels sum the products that the function states.
        narrowed: dtype -> how many tensors of floats it makes of it: a narrow float, or those of :data:`BYTES`.
    """

    length: int = 0
    exact: bool = True
    narrowed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, mod: IRModule, exact: bool = True) -> Rounding:
        """That of the TIR functions of a module."""
        return cls(accumulated_length(mod), exact, narrowings(mod))

    def tolerance(self, dtype: str) -> float:
        """Largest error of an output, as a part of its range; 0 means equal.

        float16, in which sums are computed too, has that of :data:`tvm_ext.verification.metrics.TOLERANCES`.
        """
        if dtype not in _UNITS:
            return metrics.TOLERANCES.get(dtype, 0.0)
        sums = (self.length + _EPILOGUE) * _UNITS[dtype]
        narrowed = sum(self.narrowed.get(dtype_, 0) * unit for dtype_, unit in UNIT_ROUNDOFF.items())
        return max(sums, 0.0 if self.exact else TRANSFORMED) + narrowed

    def ties(self, dtype: str, size: int) -> int:
        """How many of an output's elements may be off by one."""
        return 1 + size // _TIES if dtype in BYTES and any(self.narrowed.get(byte) for byte in BYTES) else 0


def accumulated_length(mod: IRModule) -> int:
    """Steps of all sums of the TIR functions of a module, one behind the other."""
    length = 0
    for kernel in kernels_of(mod).values():
        length += int((kernel.attrs or {}).get(SUMS, 0))
        for block in nodes_of(kernel.body, SBlock):
            extents = [v.dom.extent for v in block.iter_vars if int(v.iter_type) == _REDUCE]
            if extents and all(isinstance(e, tirx.IntImm) for e in extents):
                length += math.prod(int(e) for e in extents)
    return length


def narrowings(mod: IRModule) -> dict[str, int]:
    """dtype -> how many tensors of the TIR functions of a module are floats made of it: of those that lose digits."""
    stores = (store for kernel in kernels_of(mod).values() for store in nodes_of(kernel.body, tirx.BufferStore))
    return dict(Counter(dtype for store in stores for dtype in {str(cast.ty.dtype) for cast in _casts(store.value)}))


def _casts(value: Any) -> list[Any]:
    """Casts of wider floats to narrow ones or bytes in an expression."""
    return [
        c
        for c in nodes_of(value, tirx.Cast)
        if str(c.ty.dtype) in (*UNIT_ROUNDOFF, *BYTES) and str(c.value.ty.dtype) in ("float32", "float64")
    ]


def compare(got: np.ndarray, want: np.ndarray, span: float, rounding: Rounding) -> tuple[float | None, str]:
    """Compare an output with the reference, both in logical or both in physical shape.

    Args:
        span: range of the reference, :func:`tvm_ext.verification.metrics.value_range`.
        rounding: of the function.

    Returns:
        The error as a part of the range (None if it is no number), and what is wrong; empty if nothing is.
    """
    bound = rounding.tolerance(want.dtype.name)
    if got.shape == want.shape and got.dtype == want.dtype:
        error = _largest(got, want) / span
        if error <= bound and is_float(got.dtype):  # no NaN gets through
            return error, ""
        ties = rounding.ties(want.dtype.name, want.size)
        if ties and error * span <= 1 and np.count_nonzero(got != want) <= ties:
            return error, ""
    metric = metrics.compare("output", got, want, bound)
    return metric.of_range if math.isfinite(metric.of_range) else None, metric.reason


def _largest(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, in a type that has it."""
    wide = np.float64 if want.dtype.itemsize > 4 else np.float32
    with np.errstate(all="ignore"):
        return float(np.abs(got.astype(wide, copy=False) - want.astype(wide, copy=False)).max(initial=0.0))
