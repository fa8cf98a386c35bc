"""What differs, and by how much of what it may."""

import ml_dtypes
import numpy as np
import pytest

from .compare import close, difference

F = np.float32([1, np.nan, np.inf])


@pytest.mark.parametrize(
    ("outputs", "references", "part"),
    [
        ([F], [F.copy()], ""),
        ([F * np.float32(1.0005)], [F], ""),
        ([F * np.float32(1.01)], [F], "1 of 3"),
        ([F], [F[:2]], "shape"),
        ([F.astype(np.float64)], [F], "float64, not float32"),
        ([np.int64([10_000_001])], [np.int64([10_000_000])], "1 of 1"),
        ([np.int64([2**62 + 1])], [np.int64([2**62])], "1 of 1"),
        ([F, F], [F], "2 outputs"),
        ([np.array([1], ml_dtypes.float8_e5m2)], [np.array([1], ml_dtypes.float8_e5m2)], ""),
        ([np.array([3], ml_dtypes.int4)], [np.array([2], ml_dtypes.int4)], "1 of 1"),
        ([np.float16([1 + 2.0**-9])], [np.float16([1])], ""),
        ([np.array(["a"], object)], [np.array(["b"], object)], "1 of 1"),
        ([[F, F]], [[F, F]], ""), ([[F]], [[F, F]], "1 outputs"), ([F], [[F]], "a sequence on one side"),
        ([None], [None], ""), ([None], [F], "an empty optional"),
    ],
)  # fmt: skip
def test_as_onnx_does(outputs, references, part):
    reason, share = difference(outputs, references, close(1e-3, 1e-7))
    assert part in reason and bool(part) == bool(reason) == (share > 1)


@pytest.mark.parametrize(
    ("output", "reference", "error", "part"),
    [
        (F, F.copy(), 0.0, ""),
        (np.float32([1.001]), np.float32([1.0]), 1e-2, ""),
        (np.float32([1.1]), np.float32([1.0]), 1e-2, "1 of 1"),
        (F, np.float32([1, np.nan, -np.inf]), 1.0, "1 of 3"),
        (F, np.float32([1, 2, np.inf]), 1.0, "1 of 3"),
        (F, F[:2], 0.0, "shape"),
        (F, F.astype(np.float64), 0.0, "float32, not float64"),
        (np.int64([3]), np.int64([4]), 0.0, "1 of 1 int64"),
        (np.uint8([255]), np.uint8([254]), 1.0, ""),
        (np.uint8([255]), np.uint8([0]), 1.0, "1 of 1"),
    ],
)
def test_within_an_error(output, reference, error, part):
    reason, share = difference([output], [reference], lambda *_: error)
    assert part in reason and bool(part) == bool(reason) == (share > 1)


def test_dtypes_of_a_reference_may_differ():
    assert difference([F], [F.astype(np.float64)], close(0, 0), dtypes=False) == ("", 0.0)
