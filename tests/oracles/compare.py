"""What of outputs differs: one comparison for all suites, each of which says how large an error may be."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Number of an output and its reference -> how large an error may be: one number, or one for each element.
Allowed = Callable[[int, np.ndarray], Any]
#: Two units in the last place. ONNX's runner allows as much for bfloat16; its 1e-3 would be one of float16, and some
#: of the outputs that it wants are farther than that from the exact ones.
_TWO_UNITS = {"bfloat16": 2.0**-6, "float16": 2.0**-9}


def close(rtol: float, atol: float) -> Allowed:
    """For floats as `np.isclose`, or two units in the last place of narrow ones; integers and booleans are equal."""

    def allowed(number: int, reference: np.ndarray) -> Any:
        if reference.dtype.kind in "iubOUS":
            return 0.0
        with np.errstate(all="ignore"):
            return atol + max(rtol, _TWO_UNITS.get(reference.dtype.name, 0.0)) * np.abs(reference.astype(np.float64))

    return allowed


def difference(
    outputs: Sequence[Any], references: Sequence[Any], allowed: Allowed, dtypes: bool = True
) -> tuple[str, float]:
    """What differs first, "" if nothing does; and the largest error as a part of what it may be.

    NaN agrees with NaN, an infinity with the same one, strings are equal.

    Args:
        outputs, references: arrays; lists of arrays for sequences; None for an empty optional.
        dtypes: whether these must be the same.
    """
    if len(outputs) != len(references):
        return f"{len(outputs)} outputs, not {len(references)}", np.inf
    worst = 0.0
    for number, (mine, theirs) in enumerate(zip(outputs, references, strict=True)):
        reason, share = _differs(mine, theirs, allowed, number, dtypes)
        if reason:
            return f"output {number}: {reason}", share
        worst = max(worst, share)
    return "", worst


def _differs(mine: Any, theirs: Any, allowed: Allowed, number: int, dtypes: bool) -> tuple[str, float]:
    if mine is None or theirs is None:
        return ("", 0.0) if mine is theirs else ("an empty optional on one side only", np.inf)
    if isinstance(mine, list) and isinstance(theirs, list):
        return difference(mine, theirs, lambda _, x: allowed(number, x), dtypes)
    if isinstance(mine, list) or isinstance(theirs, list):
        return "a sequence on one side only", np.inf
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    if mine.shape != theirs.shape:
        return f"shape {mine.shape}, not {theirs.shape}", np.inf
    if dtypes and mine.dtype != theirs.dtype and not theirs.dtype.hasobject:
        return f"{mine.dtype}, not {theirs.dtype}", np.inf
    share = _shares(mine, theirs, allowed(number, theirs))
    if not (share > 1.0).any():
        return "", float(share.max(initial=0.0))
    at = tuple(int(i) for i in np.unravel_index(int(share.argmax()), share.shape))
    text = f"{int((share > 1.0).sum())} of {share.size} {mine.dtype} values differ, {mine[at]!s} for {theirs[at]!s}"
    return f"{text} at {at}" if at else text, float(share[at])


def _shares(mine: np.ndarray, theirs: np.ndarray, allowed: Any) -> np.ndarray:
    """Errors of elements as parts of what they may be; infinite where nothing is allowed, or one is no number."""
    if mine.dtype.kind in "OUS":
        return np.where(mine != theirs, np.inf, 0.0)
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):
        # float64 has not all integers of 64 bits, so that only these say whether they are equal
        equal = mine == theirs if mine.dtype.kind in "iub" else (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.maximum(np.abs(a - b), np.finfo(np.float64).tiny)
        return np.where(equal, 0.0, np.where(np.isfinite(gap), gap / np.asarray(allowed, np.float64), np.inf))
