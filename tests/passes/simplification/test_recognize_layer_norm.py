"""recognize-layer-norm: the ways to write it, numbers against float64, and refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, execute, ops, random, rewritten, untouched
from tvm_ext.core.graph.relax_graph import main_bindings, numpy_of
from tvm_ext.passes.simplification.recognize_layer_norm import RecognizeLayerNorm

Emit = Callable[[Any], Any]


def by_division(emit: Emit, d: Any, variance: Any) -> Any:
    return emit(R.divide(d, emit(R.sqrt(variance))))


def by_rsqrt(emit: Emit, d: Any, variance: Any) -> Any:
    return emit(R.multiply(emit(R.rsqrt(variance)), d))


def by_reciprocal(emit: Emit, d: Any, variance: Any) -> Any:
    return emit(R.multiply(d, emit(R.divide(const(1.0), emit(R.sqrt(variance))))))


def square(emit: Emit, d: Any) -> Any:
    return emit(R.multiply(d, d))


def power(emit: Emit, d: Any) -> Any:
    return emit(R.power(d, const(2.0)))


def norm(
    emit: Emit, x: Any, axes: Any = (-1,), squared: Any = square, finish: Any = by_division, epsilon: float = 1e-5,
    keepdims: bool = True, centre: Any = None,
) -> Any:  # fmt: skip
    """The normalization of x without weight and bias."""
    d = emit(R.subtract(x, emit(R.mean(x if centre is None else centre, list(axes), keepdims=True))))
    mean = emit(R.mean(squared(emit, d), list(axes), keepdims=keepdims))
    return finish(emit, d, emit(R.add(mean, const(epsilon))))


@pytest.mark.parametrize("squared", [square, power])
@pytest.mark.parametrize("finish", [by_division, by_rsqrt, by_reciprocal])
@pytest.mark.parametrize("axes", [(-1,), (1, 2)])
def test_one_operator_with_weight_and_bias(squared: Any, finish: Any, axes: Any) -> None:
    shape = (3, 4, 6)
    gamma, beta = (random(*[shape[a] for a in axes], seed=s) for s in (1, 2))

    def body(emit: Emit, x: Any) -> Any:
        scaled = emit(R.multiply(norm(emit, x, axes, squared, finish), const(gamma)))
        return emit(R.add(scaled, const(beta)))

    mod = build(body, shape)
    result = apply(RecognizeLayerNorm(), mod)
    assert ops(result.mod) == ["layer_norm"]
    call = main_bindings(result.mod)[0].value
    np.testing.assert_array_equal(numpy_of(call.args[1]), gamma)
    np.testing.assert_array_equal(numpy_of(call.args[2]), beta)
    assert call.attrs.epsilon == pytest.approx(1e-5)
    x = random(*shape)
    wide = x.astype("f8")
    d = wide - wide.mean(axes, keepdims=True)
    want = d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5) * gamma + beta
    np.testing.assert_allclose(execute(result.mod, x)[0], want, rtol=0, atol=2e-6 * np.abs(want).max())
    assert apply(RecognizeLayerNorm(), result.mod).fired == ()


WEIGHTED = {
    "without weight and bias": lambda emit, x: norm(emit, x),
    "a weight of one number and a bias of full rank": lambda emit, x: emit(
        R.add(emit(R.multiply(const(2.0), norm(emit, x))), const(random(1, 1, 5)))
    ),
    "a factor scales the bias too": lambda emit, x: emit(
        R.multiply(emit(R.add(norm(emit, x), const(random(5)))), const(random(5, seed=3)))
    ),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_and_biases(name: str) -> None:
    mod = build(WEIGHTED[name], (2, 3, 5))
    assert ops(rewritten(RecognizeLayerNorm(), mod, tolerance=2e-6).mod) == ["layer_norm"]


def test_a_weight_for_each_row_stays() -> None:
    mod = build(lambda emit, x: emit(R.multiply(norm(emit, x), const(random(4, 1)))), (4, 5))
    assert ops(apply(RecognizeLayerNorm(), mod).mod) == ["layer_norm", "multiply"]


def _read_twice(emit: Emit, x: Any) -> Any:
    n = norm(emit, x)
    return emit(R.add(emit(R.multiply(n, const(random(5)))), n))


def _overflow(emit: Emit, x: Any) -> Any:
    return emit(R.multiply(emit(R.multiply(norm(emit, x), const(np.full(5, 3e38)))), const(np.full(5, 3e38))))


SKIPPED = {
    "first dimension": (lambda emit, x: norm(emit, x, axes=(0,)), "over dimensions [0] of 2"),
    "negative epsilon": (lambda emit, x: norm(emit, x, epsilon=-1e-3), "an epsilon of -0.001"),
    "read twice": (_read_twice, "read elsewhere too"),
    "infinite weight": (_overflow, "would not be finite"),
}


@pytest.mark.parametrize(("body", "reason"), SKIPPED.values(), ids=SKIPPED)
def test_skips_with_a_reason(body: Any, reason: str) -> None:
    result = apply(RecognizeLayerNorm(), build(body, (4, 5)))
    assert any(reason in e.detail for e in result.skipped) and ops(result.mod) != ["layer_norm"]


OTHERS = {
    "centred by another mean": lambda emit, x: norm(emit, x, centre=emit(R.exp(x))),
    "dropped dimension": lambda emit, x: norm(emit, x, keepdims=False),
    "cubes": lambda emit, x: norm(emit, x, squared=lambda emit, d: emit(R.power(d, const(3.0)))),
    "another numerator": lambda emit, x: norm(emit, x, finish=lambda emit, d, v: by_division(emit, emit(R.exp(d)), v)),
    "divided by the variance": lambda emit, x: norm(emit, x, finish=lambda emit, d, v: emit(R.divide(d, v))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_leaves_what_only_looks_alike(name: str) -> None:
    untouched(RecognizeLayerNorm(), build(OTHERS[name], (5, 5)))
