"""Whether a candidate computes what the unscheduled function does: the error that rounding may make, and comparing.

Tolerances are parts of the output's range. Two sums of n float32 products, in different orders, differ by some
sqrt(n) u of the sum of magnitudes (u = 2^-24; N. J. Higham and T. Mary, "A new approach to probabilistic rounding error
analysis", SISC 2019: a factor of 6 holds for all but one sum in 10^7). Of normal values those magnitudes sum to 0.64 n
and the results range over 8 sqrt(n) and more; so the difference is about n u of the range, and this is the tolerance:

    (n + 64) u        n: lengths of all sums of the function; 64 for its epilogue
    at least 1e-4     for recipes that transform the sums (Winograd)

A term left out changes results by 1 / (8 sqrt(n)) of the range, which is a hundred times as much.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock

from ...verification import metrics

#: Largest error of a recipe that transforms the sums, as a part of the output's range.
TRANSFORMED = 1e-4
_UNITS = {"float64": 2.0**-53, "float32": 2.0**-24}
_EPILOGUE = 64
_REDUCE = 2


def tolerance(dtype: str, length: int, exact: bool) -> float:
    """Largest error of an output, as a part of its range; 0 means equal.

    Args:
        dtype: of the output. Half types have those of :data:`tvm_ext.verification.metrics.TOLERANCES`.
        length: of the sums, as :func:`accumulated_length` counts them.
        exact: whether the kernel sums the products that the function states.
    """
    if dtype not in _UNITS:
        return metrics.TOLERANCES.get(dtype, 0.0)
    rounding = (length + _EPILOGUE) * _UNITS[dtype]
    return rounding if exact else max(rounding, TRANSFORMED)


def accumulated_length(mod: IRModule) -> int:
    """Steps of all sums of the TIR functions of a module, one behind the other."""
    lengths: list[int] = []

    def visit(block: Any) -> None:
        extents = [v.dom.extent for v in block.iter_vars if int(v.iter_type) == _REDUCE]
        if extents and all(isinstance(e, tirx.IntImm) for e in extents):
            lengths.append(math.prod(int(e) for e in extents))

    for _, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (SBlock, visit))
    return sum(lengths)


def compare(got: np.ndarray, want: np.ndarray, span: float, bound: float) -> tuple[float | None, str]:
    """Compare an output with the reference, both in logical or both in physical shape.

    Args:
        span: range of the reference, :func:`tvm_ext.verification.metrics.value_range`.
        bound: largest error, as a part of the range.

    Returns:
        The error as a part of the range (None if it is no number), and what is wrong; empty if nothing is.
    """
    if got.dtype.kind == "f" and got.shape == want.shape:
        with np.errstate(all="ignore"):
            error = float(np.abs(got - want).max(initial=0.0)) / span
        if error <= bound:  # no NaN gets through
            return error, ""
    found = metrics.compare("output", got, want, bound)
    return found.of_range if math.isfinite(found.of_range) else None, found.reason
