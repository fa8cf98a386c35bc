"""Whole quotients without a division, against division, around every half."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tvm_ext.driver.quotients import is_exact


def _fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a b + c in one rounding."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(float(exact))
    choices = [np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf)]
    return min([near, *choices], key=lambda f: abs(Fraction(float(f)) - exact))


def _quotient(x: np.float32, scale: np.float32) -> np.float32:
    inverse = np.float32(1) / scale
    q = x * inverse
    return _fma(_fma(q, -scale, x), inverse, q)


def test_equals_division() -> None:
    rng = np.random.default_rng(5)
    scales = [*rng.uniform(0.5, 1, 6).astype("float32"), np.float32(0.1), np.float32(1 / 255), np.float32(2.0**-7)]
    for scale in filter(is_exact, scales):
        for half in (*range(8), 61, 62, 63, 64, 127, 128, 254, 255):
            middle = np.float32(half + 0.5) * scale
            for x in middle + np.spacing(middle) * np.arange(-3, 4, dtype="float32"):
                assert np.rint(_quotient(x, scale)) == np.rint(x / scale)


def test_nearly_every_scale_is_taken() -> None:
    rng = np.random.default_rng(5)
    scales = np.exp(rng.uniform(-12, 3, 500)).astype("float32")
    assert sum(map(is_exact, scales)) >= 490


@pytest.mark.parametrize("scale", [0.0, -0.1, 1e-38, float("inf"), float("nan")])
def test_leaves_out(scale: float) -> None:
    assert not is_exact(scale)
