"""How far outputs are from their reference, in parts of its range."""

import math
from collections.abc import Mapping

import numpy as np


def value_range(reference: np.ndarray) -> float:
    """max - min of the finite values of a reference; of a constant one its magnitude, and of zeros (or nothing) 1."""
    finite = reference[np.isfinite(reference)].astype(np.float64)
    if not finite.size:
        return 1.0
    return float(finite.max() - finite.min()) or float(np.abs(finite).max()) or 1.0


def largest_error(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """The largest error of floating-point outputs, of their range; infinite where one side alone is finite."""
    errors = [_error(outputs[name], expected) for name, expected in reference.items() if expected.dtype.kind == "f"]
    return max(errors, default=0.0)


def _error(actual: np.ndarray, expected: np.ndarray) -> float:
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(actual)):
        return math.inf
    wrong = np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64))
    return float(wrong.max(initial=0.0)) / value_range(expected)
