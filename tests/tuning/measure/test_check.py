"""Tolerances and comparing."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te
from tvm.ir import IRModule

from tvm_ext.tuning.measure.check import accumulated_length, compare, tolerance
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
    assert tolerance("float32", 576, exact=True) == 640 * 2.0**-24
    assert tolerance("float32", 576, exact=False) == 1e-4
    assert tolerance("float32", 4608, exact=False) > 1e-4
    assert tolerance("float64", 0, exact=True) == 64 * 2.0**-53
    assert tolerance("int8", 576, exact=True) == 0.0
    assert tolerance("float16", 576, exact=True) == 5e-3


@pytest.mark.parametrize("terms", [1, 9, 147, 576, 4608])
def test_rounding_passes_and_a_left_out_term_does_not(terms: int) -> None:
    rng = np.random.default_rng(terms)
    a, b = (rng.standard_normal((64, terms), np.float32) for _ in range(2))
    products = a[:, None] * b[None]
    forth, back = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    for step in range(terms):
        forth += products[:, :, step]
        back += products[:, :, terms - 1 - step]
    bound, span = tolerance("float32", terms, exact=True), value_range(forth)
    error, reason = compare(back, forth, span, bound)
    assert reason == ""
    assert error is not None
    assert error <= bound / 2
    error, reason = compare(back - products[:, :, -1], forth, span, bound)
    assert "of the range" in reason


def test_nan_infinity_and_integers() -> None:
    want = np.array([1, 2, np.inf, np.nan], np.float32)
    assert compare(want, want, 1.0, 1e-6) == (0.0, "")
    assert "NaN" in compare(np.array([1, np.nan, np.inf, np.nan], np.float32), want, 1.0, 1e-6)[1]
    assert "infinities" in compare(np.array([1, 2, -np.inf, np.nan], np.float32), want, 1.0, 1e-6)[1]
    assert compare(np.arange(4), np.arange(4), 3.0, 0.0) == (0.0, "")
    assert "1 of 4" in compare(np.array([0, 1, 2, 4]), np.arange(4), 3.0, 0.0)[1]
