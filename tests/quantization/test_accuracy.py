"""Figures of a layer, from their definitions."""

import numpy as np
import pytest

from tests.quantization.models import residual, run, samples
from tvm_ext.quantization.accuracy import _Sums
from tvm_ext.quantization.quantize import quantize


def metrics(*pairs: tuple[np.ndarray, np.ndarray]) -> tuple[float, float, float]:
    sums = _Sums()
    for wanted, ours in pairs:
        sums.add(wanted, ours)
    return sums.metrics()


def test_metrics_are_those_of_all_samples_together() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.standard_normal((6, 50)).astype(np.float32)
    outputs = (wanted + 0.01 * rng.standard_normal(wanted.shape)).astype(np.float32)
    sqnr, of_range, cosine = metrics(*zip(wanted, outputs, strict=True))
    a, b = wanted.astype(np.float64).ravel(), outputs.astype(np.float64).ravel()
    assert sqnr == pytest.approx(10 * np.log10(np.sum(a**2) / np.sum((a - b) ** 2)))
    assert of_range == pytest.approx(np.abs(a - b).max() / np.ptp(a))
    assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_edges() -> None:
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    assert metrics((ones, ones)) == (np.inf, 0.0, 1.0)
    assert metrics((zeros, zeros)) == (np.inf, 0.0, 1.0)
    assert metrics((zeros, ones)) == (-np.inf, 1.0, 0.0)
    assert metrics((zeros[:0], zeros[:0])) == (np.inf, 0.0, 1.0)


def test_rows_are_of_the_values_that_onnxruntime_computes() -> None:
    model = residual()
    feeds = samples(model, 3)
    result = quantize(model, feeds)
    row = result.outputs[0]
    wanted, outputs = (np.stack([run(m, x) for x in feeds]).astype(np.float64) for m in (model, result.model))
    assert row.sqnr == pytest.approx(10 * np.log10(np.sum(wanted**2) / np.sum((wanted - outputs) ** 2)), rel=1e-3)


def test_a_better_model_has_better_rows() -> None:
    model = residual()
    fine, coarse = (
        {row.value: row.sqnr for row in quantize(model, samples(model), reduce_range=bits == 7).layers}
        for bits in (8, 7)
    )
    assert fine["r1"] > coarse["r1"] and fine["r2"] > coarse["r2"] > 15
