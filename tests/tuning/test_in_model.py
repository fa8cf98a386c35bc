"""Ratios of paired rounds, and kernels timed inside a model by the task they belong to."""

import math

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import random, two_products
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.tuning.extract import workloads_of
from tvm_ext.tuning.in_model import Ratio, paired, quantile_interval, task_seconds

LAYERS = two_products(4, 8, 12, 6)


@pytest.mark.parametrize(("count", "expected"), [(1, (0, 0)), (2, (0, 1)), (6, (0, 5)), (9, (1, 7)), (15, (3, 11))])
def test_the_interval_of_a_median_is_that_of_the_tables(count, expected):
    assert quantile_interval(count) == expected  # Conover, table A3 (p = 1/2)


def test_the_interval_covers_the_median():
    rng = np.random.default_rng(5)
    low, high = quantile_interval(15)
    samples = np.sort(rng.standard_normal((4000, 15)), axis=1)
    covered = np.mean((samples[:, low] <= 0) & (samples[:, high] >= 0))
    assert 0.95 <= covered <= 0.98


def test_the_interval_covers_any_quantile():
    samples = np.sort(np.random.default_rng(6).random((4000, 30)), axis=1)
    for quantile in (0.25, 0.75):
        low, high = quantile_interval(30, quantile)
        covered = np.mean((samples[:, low] <= quantile) & (samples[:, high] >= quantile))
        assert 0.94 <= covered <= 0.99 and high - low < 14


def test_a_ratio_pairs_rounds():
    ratio = Ratio.of([1.0, 2.0, 3.0], [2.0, 4.0, 3.0])
    assert (ratio.median, ratio.low, ratio.high) == (0.5, 0.5, 1.0) and ratio.seconds == (1.0, 2.0)
    assert str(ratio).startswith("0.500 (0.500 to 1.000")


def test_kernels_are_timed_by_task():
    proto, machine = LAYERS, Machine.detect(threads=1)
    compiled = tvm_ext.compile(proto, threads=1, records=None, cache=False)
    workloads = workloads_of(proto, CompileOptions(threads=1), machine)
    owners = {n: w.key for w in workloads for site in w.calls for n in site}
    inputs = {"x": random(4, 8)}
    first, second = task_seconds([compiled, compiled], inputs, owners, rounds=3)
    assert set(first) == set(second) == {w.key for w in workloads} and len(first) == 2
    assert all(math.isfinite(s) and s > 0 for s in first.values())


def test_rounds_are_paired_and_both_programs_run():
    compiled = tvm_ext.compile(LAYERS, threads=1, records=None, cache=False)
    ratio = paired(compiled, compiled, {"x": random(4, 8)}, rounds=3, seconds=0.0)
    assert ratio.rounds == 3 and ratio.low <= ratio.median <= ratio.high and min(ratio.seconds) > 0
