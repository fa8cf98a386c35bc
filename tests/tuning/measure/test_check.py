"""Tolerances and comparing."""

import numpy as np
import pytest
from tvm import te
from tvm.ir import IRModule

from tvm_ext.tuning.measure.check import Rounding, accumulated_length, compare, narrowings
from tvm_ext.verification.metrics import value_range


def test_lengths_of_all_sums_are_added() -> None:
    x = te.placeholder((3, 5, 7), "float32", "x")
    r, s = te.reduce_axis((0, 5), "r"), te.reduce_axis((0, 7), "s")
    y = te.compute((3,), lambda i: te.sum(x[i, r, s], [r, s]), "y")
    t = te.reduce_axis((0, 3), "t")
    z = te.compute((1,), lambda i: te.max(y[t], t), "z")
    assert accumulated_length(IRModule({"main": te.create_prim_func([x, z])})) == 5 * 7 + 3
    w = te.compute((3,), lambda i: x[i, 0, 0] + 1.0, "w")
    assert accumulated_length(IRModule({"main": te.create_prim_func([x, w])})) == 0


def test_tolerances() -> None:
    layer = Rounding(576)
    assert layer.tolerance("float32") == 640 * 2.0**-24
    assert Rounding(576, exact=False).tolerance("float32") == 1e-4
    assert Rounding(4608, exact=False).tolerance("float32") > 1e-4
    assert Rounding().tolerance("float64") == 64 * 2.0**-53
    assert layer.tolerance("int8") == 0.0
    assert layer.tolerance("float16") == 5e-3
    assert Rounding(0, narrowed={"bfloat16": 2}).tolerance("bfloat16") == 2 / 256 + 64 * 2.0**-24
    assert Rounding(0).tolerance("bfloat16") < 1e-5  # moved, not rounded


def test_what_is_narrowed_is_counted() -> None:
    x, y = te.placeholder((3, 5), "float32", "x"), te.placeholder((3, 5), "int32", "y")
    a = te.compute((3, 5), lambda i, j: (x[i, j] * 2.0).astype("bfloat16"), "a")
    b = te.compute((3, 5), lambda i, j: a[i, j].astype("float32").astype("uint8"), "b")
    c = te.compute((3, 5), lambda i, j: y[i, j].astype("int8"), "c")
    assert narrowings(IRModule({"main": te.create_prim_func([x, b])})) == {"bfloat16": 1, "uint8": 1}
    assert narrowings(IRModule({"main": te.create_prim_func([y, c])})) == {}


def test_some_quantized_numbers_may_be_off_by_one() -> None:
    want = np.arange(640, dtype=np.int64).astype(np.uint8)
    got = want.copy()
    quantized, plain = Rounding(9, narrowed={"uint8": 1}), Rounding(9)
    got[:11] += 1
    assert compare(got, want, 255.0, quantized) == (1 / 255, "")
    assert "11 of 640" in compare(got, want, 255.0, plain)[1]
    got[11] += 1
    assert "12 of 640" in compare(got, want, 255.0, quantized)[1]
    got[:] = want
    got[5] += 2
    assert "1 of 640" in compare(got, want, 255.0, quantized)[1]


@pytest.mark.parametrize("terms", [1, 9, 147, 576, 4608])
def test_rounding_passes_and_a_left_out_term_does_not(terms: int) -> None:
    rng = np.random.default_rng(terms)
    a, b = (rng.standard_normal((64, terms), np.float32) for _ in range(2))
    products = a[:, None] * b[None]
    forth, back = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    for step in range(terms):
        forth += products[:, :, step]
        back += products[:, :, terms - 1 - step]
    bound, span = Rounding(terms), value_range(forth)
    error, reason = compare(back, forth, span, bound)
    assert reason == ""
    assert error is not None
    assert error <= bound.tolerance("float32") / 2
    error, reason = compare(back - products[:, :, -1], forth, span, bound)
    assert "of the range" in reason


def test_nan_infinity_and_integers() -> None:
    want = np.array([1, 2, np.inf, np.nan], np.float32)
    sums = Rounding(9)
    assert compare(want, want, 1.0, sums) == (0.0, "")
    assert "NaN" in compare(np.array([1, np.nan, np.inf, np.nan], np.float32), want, 1.0, sums)[1]
    assert "infinities" in compare(np.array([1, 2, -np.inf, np.nan], np.float32), want, 1.0, sums)[1]
    assert compare(np.arange(4), np.arange(4), 3.0, sums) == (0.0, "")
    assert "1 of 4" in compare(np.array([0, 1, 2, 4]), np.arange(4), 3.0, sums)[1]
