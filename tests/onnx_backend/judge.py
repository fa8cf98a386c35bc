"""Compares outputs as ONNX's own runner does; but integers and booleans exactly, float16 within two units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Two units in the last place. ONNX's runner allows as much for bfloat16; its 1e-3 would be one of float16, and some
#: of the outputs wanted are farther than that from the exact ones.
_TWO_UNITS = {"bfloat16": 2.0**-6, "float16": 2.0**-9}


def difference(found: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> str:
    """What of the outputs differs first, in a short line; "" if they agree."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for i, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if reason := _differs(mine, theirs, rtol, atol):
            return f"output {i}: {reason}"
    return ""


def _differs(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    if wanted is None or found is None:
        return "" if wanted is found else "an empty optional on one side only"
    if isinstance(wanted, list):
        return difference(found, wanted, rtol, atol) if isinstance(found, list) else "no sequence"
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return f"shape {found.shape}, not {wanted.shape}"
    if found.dtype != wanted.dtype and not wanted.dtype.hasobject:
        return f"{found.dtype}, not {wanted.dtype}"
    same = _agree(found, wanted, rtol, atol)
    return "" if same.all() else f"{int((~same).sum())} of {same.size} values differ"


def _agree(found: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """Element by element."""
    rtol = max(rtol, _TWO_UNITS.get(wanted.dtype.name, 0.0))
    if wanted.dtype.kind in "iubOUS":
        return np.asarray(found == wanted)
    if wanted.dtype.type.__module__ != "numpy":  # of ml_dtypes: float32 holds each of their values
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.isclose(found, wanted, rtol, atol, equal_nan=True)
