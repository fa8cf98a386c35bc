"""Differences against an absolute bound, and their histogram."""

import json
import math

import numpy as np

from tests.onnx_graphs import random
from tvm_ext.verification.metrics import bins_of, difference, histogram


def test_within_and_beyond_the_bound() -> None:
    a = random(5, 7)
    b = a.copy()
    b[3, 2] += 0.5
    reported = difference(b, a, 0.1)
    assert (
        not reported.ok and reported.mismatched == 1 and reported.worst_index == (3, 2) and 4.9 < reported.ratio < 5.1
    )
    assert difference(b, a, 0.6).ok and difference(b, a, 0.6).ratio < 1


def test_a_few_ulp_agree_unless_values_are_moved() -> None:
    a = np.full((4,), 1e6, np.float32)
    b = np.nextafter(a, np.float32(np.inf))
    assert difference(b, a, 1e-9).ok and not difference(b, a, 0.0).ok
    assert difference(b, a, 0.0).ratio == math.inf


def test_nan_and_infinity_on_one_side_are_found() -> None:
    a = random(6)
    b, c = a.copy(), a.copy()
    b[1], c[2] = np.nan, -np.inf
    assert difference(b, a, 10.0).nan_mismatch == 1 and difference(b, a, 10.0).worst_index == (1,)
    assert difference(c, a, 10.0).inf_mismatch == 1 and difference(c, a, 10.0).ratio == math.inf
    assert difference(b, b, 0.0).ok and difference(c, c, 0.0).ok


def test_integers_booleans_and_nothing() -> None:
    a = np.array([1, 2, 3], np.int8)
    assert difference(a, a, 0.0).ok and difference(a + np.int8(1), a, 1.0).ok
    assert not difference(a + np.int8(2), a, 1.0).ok
    assert difference(np.array([True, False]), np.array([True, True]), 0.0).mismatched == 1
    assert difference(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 0.0).ok


def test_histogram() -> None:
    errors = np.array([0.0, 0.0, 2e-7, 3e-7, 5e-5])
    assert bins_of(errors) == ((None, 2), (-7, 2), (-6, 0), (-5, 1))
    _, *text = histogram(bins_of(errors), 1e-5).text().splitlines()
    assert len(text) == 4 and "equal" in text[0] and text[-1].endswith("beyond the tolerance")
    assert [line.count("#") for line in text] == [40, 40, 0, 28]  # roots of the part of the most


def test_plain_values_are_json() -> None:
    a = random(3, 3)
    for result in (difference(a + 1, a, 0.0), difference(a, a, 1.0)):
        assert json.loads(json.dumps(result.as_dict(), allow_nan=False))["mismatched"] == result.mismatched
