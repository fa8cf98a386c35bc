"""Floats cut off to whole numbers in numpy; kernels and constants are compared in the tests of Cast."""

from typing import Any

import ml_dtypes
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


@pytest.mark.parametrize("source", ["float32", "float16", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, "int32"])
@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("uint4", [13, 15, 0, 7, 8, 0, 4]), ("int4", [-3, -1, 0, 7, -8, 0, 4]), ("uint2", [1, 3, 0, 3, 0, 0, 0]),
     ("int2", [1, -1, 0, -1, 0, 0, 0])],
)  # fmt: skip
def test_integers_of_few_bits_have_the_low_bits(source: Any, dtype: str, wanted: list[int]) -> None:
    x = np.array([-3, -1, 0, 7, 8, 16, 20], source)
    assert converted(x, dtype).astype("int8").tolist() == wanted
    if "int" not in str(source):
        assert converted(np.array([np.nan, np.inf], source), dtype).astype("int8").tolist() == [0, 0]
