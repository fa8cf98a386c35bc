"""Metrics against values worked out by hand."""

import json
import math

import numpy as np
import pytest

from tvm_ext.verification.metrics import (
    TOLERANCES,
    Deviations,
    compare,
    cosine_similarity,
    ulp_distance,
    value_range,
)  # fmt: skip


def test_errors_of_a_small_example():
    expected = np.array([[0.0, 1.0], [2.0, 4.0]], np.float32)
    actual = np.array([[0.0, 1.5], [2.0, 3.0]], np.float32)
    m = compare("y", actual, expected)
    assert (m.max_abs, m.of_range) == (1.0, 0.25)  # range 4 - 0
    assert (m.worst_index, m.actual, m.expected) == ((1, 1), "3.0", "4.0")
    assert m.mismatched == 2 and not m.ok
    # 1.5*1 + 2*2 + 3*4 over the norms
    assert m.cosine == pytest.approx(17.5 / math.sqrt((2.25 + 4 + 9) * (1 + 4 + 16)), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ulp_counts_representable_values(dtype):
    one = np.array(1.0, dtype)
    up, down, zero = np.nextafter(one, dtype_of(dtype, 2)), np.nextafter(one, dtype_of(dtype, 0)), np.array(0.0, dtype)
    assert int(ulp_distance(up, one)) == 1 and int(ulp_distance(up, down)) == 2
    assert int(ulp_distance(np.array(-0.0, dtype), zero)) == 0
    tiny = np.nextafter(zero, one)
    assert int(ulp_distance(tiny, -tiny)) == 2


def dtype_of(dtype, value):
    return np.array(value, dtype)


def test_truth_values_have_no_steps():
    """A bound of whole steps, as of what is rounded to 8 bits, lets no truth value be another."""
    expected = np.array([True, False, True])
    assert Deviations.of(~expected, expected, 1.0).wrong.all()
    assert not Deviations.of(expected, expected, 1.0).wrong.any()


def test_ulp_of_the_extremes_does_not_overflow():
    top = np.array(np.finfo(np.float64).max)
    # twice the finite values above zero: exponents 0..2046 with 52 bits of fraction
    assert int(ulp_distance(top, -top)) == 2 * (2047 * 2**52 - 1)


def test_ulp_of_bfloat16():
    import ml_dtypes

    m = compare("y", np.array([1.0, 2.0], ml_dtypes.bfloat16), np.array([1.0078125, 2.0], ml_dtypes.bfloat16))
    assert m.max_ulp == 1 and m.ok and m.max_abs == 0.0078125


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 3.0, -2.0], 5.0), ([7.0, 7.0], 7.0), ([-7.0], 7.0), ([0.0, 0.0], 1.0), ([], 1.0),
        ([1.0, np.inf, 2.0], 1.0),
    ],
)  # fmt: skip
def test_value_range(values, expected):
    assert value_range(np.array(values)) == expected


def test_tolerance_is_of_the_range_and_by_dtype():
    expected = np.array([0.0, 100.0], np.float32)
    assert compare("y", expected + np.float32(9e-4), expected).ok  # 9e-6 of the range
    assert not compare("y", expected + np.float32(2e-3), expected).ok
    assert compare("y", expected + np.float32(2e-3), expected, tolerance=1e-4).ok
    assert not compare("y", (expected + 2e-3).astype("f8"), expected.astype("f8")).ok
    assert TOLERANCES["float64"] < TOLERANCES["float32"] < TOLERANCES["float16"] < TOLERANCES["bfloat16"]


def test_few_ulp_always_agree_unless_equality_is_asked_for():
    expected = np.array([1000.0, np.nextafter(np.float32(1000), np.float32(2000))], np.float32)  # range: one ULP
    actual = np.nextafter(expected, np.float32(2000))
    assert compare("y", actual, expected).ok
    assert not compare("y", actual, expected, tolerance=0.0).ok


def test_nan_must_be_where_the_reference_has_it():
    expected = np.array([1.0, np.nan, 3.0], np.float32)
    assert compare("y", expected.copy(), expected).ok
    moved = compare("y", np.array([np.nan, 2.0, 3.0], np.float32), expected)
    assert moved.nan_mismatch == 2 and not moved.ok and moved.worst_index == (0,)
    assert not compare("y", np.array([1.0, np.nan, np.nan], np.float32), expected, tolerance=1e9).ok


def test_infinities_must_have_the_same_sign():
    expected = np.array([np.inf, -np.inf, 0.0], np.float32)
    assert compare("y", expected.copy(), expected).ok
    flipped = compare("y", np.array([np.inf, np.inf, 0.0], np.float32), expected)
    assert flipped.inf_mismatch == 1 and flipped.worst_index == (1,) and not flipped.ok
    assert compare("y", np.array([3e38, -np.inf, 0.0], np.float32), expected).inf_mismatch == 1
    both = compare("y", np.array([np.nan, -np.inf, 0.0], np.float32), expected)
    assert both.nan_mismatch == 1 and not both.ok


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool"])
def test_integers_must_be_equal(dtype):
    expected = np.array([0, 1, 1, 0], dtype)
    assert compare("y", expected.copy(), expected).ok
    actual = np.array([0, 1, 0, 0], dtype)
    m = compare("y", actual, expected, tolerance=10.0)
    assert m.mismatched == 1 and m.worst_index == (2,) and m.max_abs == 1.0 and m.max_ulp is None and not m.ok


def test_wide_integers_one_apart_are_unequal():
    m = compare("y", np.array([2**62 + 1]), np.array([2**62]))
    assert m.mismatched == 1 and not m.ok


def test_strings_are_compared():
    assert compare("y", np.array(["a", "b"], object), np.array(["a", "b"], object)).ok
    assert not compare("y", np.array(["a", "c"], object), np.array(["a", "b"], object)).ok


def test_shape_and_dtype_must_agree():
    assert "shape" in compare("y", np.zeros((1, 2), "f4"), np.zeros((2, 1), "f4")).reason
    assert "dtype" in compare("y", np.zeros(2, "f4"), np.zeros(2, "f8")).reason


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_scalars_and_empty_arrays(shape, dtype):
    m = compare("y", np.ones(shape, dtype), np.ones(shape, dtype))
    assert m.ok and m.cosine == 1.0 and (m.worst_index is None) == (0 in shape)


def test_cosine_of_extreme_and_zero_vectors():
    assert cosine_similarity(np.array([1e200, 0.0]), np.array([1e200, 1e200])) == pytest.approx(math.sqrt(0.5))
    assert cosine_similarity(np.zeros(3), np.zeros(3)) == 1.0
    assert math.isnan(cosine_similarity(np.zeros(3), np.ones(3)))
    assert cosine_similarity(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0.0


def test_as_dict_is_strict_json():
    m = compare("y", np.array([0.0, np.nan], np.float32), np.array([0.0, 1.0], np.float32))
    plain = json.loads(json.dumps(m.as_dict(), allow_nan=False))
    assert plain["nan_mismatch"] == 1 and plain["ok"] is False and plain["worst_index"] == [1]


def test_severity_orders_outputs():
    e = np.array([0.0, 1.0], np.float32)
    good, near, bad = (compare("y", e + np.float32(d), e) for d in (0.0, 5e-6, 1.0))
    nan = compare("y", np.array([np.nan, 1.0], np.float32), e)
    assert good.severity < near.severity <= 1.0 < bad.severity < nan.severity
