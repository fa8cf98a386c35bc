"""Tolerances: they hold for the errors that sums have, grow with their length, and are no looser than they need be."""

import math

import numpy as np
import pytest

from tvm_ext.schedules.blocked.winograd import TILES, Transform
from tvm_ext.verification.tolerance import UNIT_ROUNDOFF, Tolerance, gamma, winograd_growth


def test_few_terms_have_the_sure_bound_and_many_the_probable_one() -> None:
    u = UNIT_ROUNDOFF["float32"]
    assert gamma(1, "float32") == pytest.approx(2 * u) and gamma(0, "float32") == 0.0
    assert gamma(10_000, "float32") == pytest.approx(4 * 100 * u)
    assert math.isfinite(gamma(1 << 26, "float32")) and gamma(10, "float64") < gamma(10, "float32")


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("length", [3, 67, 4608])
def test_the_bound_holds_for_sums_in_any_order(length: int, signed: bool) -> None:
    """One by one, the worst order, against float64: within the bound, and by no more than three orders of magnitude."""
    rng = np.random.default_rng(length)
    x, w = (rng.standard_normal((400, length)).astype(np.float32) for _ in range(2))
    if not signed:
        x, w = np.abs(x), np.abs(w)
    total = np.zeros(400, np.float32)
    for k in range(length):
        total = total + x[:, k] * w[:, k]
    error = np.abs(total - (x.astype(np.float64) * w).sum(axis=1)).max()
    magnitude = float((np.linalg.norm(x, axis=1) * np.linalg.norm(w, axis=1)).max())
    bound = Tolerance("float32", length, magnitude).absolute
    assert error < bound < 1000 * error


@pytest.mark.parametrize(("taps", "m"), [(taps, m) for taps, sizes in TILES.items() for m in sizes])
def test_the_growth_of_winograd_covers_its_error(taps: int, m: int) -> None:
    t, channels, rng = Transform.of(m, taps), 64, np.random.default_rng(m)
    x = rng.standard_normal((channels, t.alpha, t.alpha)).astype(np.float32)
    w = rng.standard_normal((channels, taps, taps)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (taps, taps), axis=(1, 2))
    exact = np.einsum("cijab,cab->ij", windows.astype(np.float64), w)
    at, bt = t.at.astype(np.float32), t.bt.astype(np.float32)
    u = np.einsum("ki,cij,lj->ckl", t.g, w.astype(np.float64), t.g).astype(np.float32)
    product = np.zeros((t.alpha, t.alpha), np.float32)
    for c in range(channels):
        product = product + u[c] * (bt @ x[c] @ bt.T)
    error = np.abs(at @ product @ at.T - exact).max()
    magnitude = float(np.linalg.norm(w) * np.sqrt(np.square(windows.astype(np.float64)).sum(axis=(0, 3, 4)).max()))
    assert error < Tolerance("float32", channels * taps**2, magnitude, winograd_growth(m, taps)).absolute
    assert winograd_growth(4, 3) > winograd_growth(2, 3) >= 1.0


def test_moved_values_and_integers_must_be_equal() -> None:
    assert Tolerance("float32", 0, 5.0).absolute == 0.0
    assert Tolerance("int64", 100, 5.0).absolute == 0.0 and Tolerance("bool", 1, 1.0).absolute == 0.0
    assert Tolerance("uint8", 9, 5.0, steps=1).absolute == 1.0
    assert "equal" in str(Tolerance("int8")) and "length 7" in str(Tolerance("float32", 7, 1.0))


def test_half_types_are_rounded_once_an_operator() -> None:
    one, three = (Tolerance("float16", 64, 1.0, operators=n).absolute for n in (1, 3))
    assert 2 * 2.0**-11 < one < 2.1 * 2.0**-11 and three == pytest.approx(3 * one, rel=0.01)


def test_rounded_operands_count_twice_each() -> None:
    """|x w - h(x) h(w)| <= (2 u + u^2) |x| |w|, whatever the sum's length."""
    plain, lowered = (Tolerance("float32", 64, 2.0, rounded=times).absolute for times in (0, 1))
    assert lowered - plain == pytest.approx(2 * 2.0**-8 * 2.0)
    assert Tolerance("float32", 0, 2.0).absolute == 0.0 < Tolerance("float32", 0, 2.0, rounded=1).absolute
    assert "rounded to bfloat16 1 times" in str(Tolerance("float32", 64, 2.0, rounded=1))
