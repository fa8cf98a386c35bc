"""Floats cut off to whole numbers in numpy; kernels and constants are compared in the tests of Cast."""

import numpy as np
import pytest

from tvm_ext.ops.conversion import converted


@pytest.mark.parametrize(
    ("x", "dtype", "wanted"),
    [
        (np.nan, "int32", -(2**31)), (3e9, "int32", -(2**31)), (-3e9, "int32", -(2**31)), (2.9, "int32", 2),
        (np.nan, "uint8", 0), (300.0, "uint8", 44), (-1.0, "uint8", 255), (5e9, "int16", 0),
        (-1.0, "uint32", 2**32 - 1),
        (5e9, "uint32", 5_000_000_000 - 2**32), (np.inf, "int64", -(2**63)), (2.0**63, "uint64", 2**63),
        (np.nan, "uint64", 2**63), (2.0**64, "uint64", 0), (-1.0, "uint64", 2**64 - 1), (np.nan, "bool", True),
        (0.1, "float32", np.float32(0.1)),
    ],
)  # fmt: skip
def test_a_number(x: float, dtype: str, wanted: float) -> None:
    got = converted(np.array([x]), dtype)
    assert got.dtype == dtype and got.tolist() == [wanted]


def test_whole_numbers_wrap() -> None:
    assert converted(np.array([300, -1], "int32"), "uint8").tolist() == [44, 255]
