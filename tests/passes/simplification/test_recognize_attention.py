"""recognize-attention: every way exporters write it, and what only looks like it."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, ops, random, same_output
from tvm_ext.passes.simplification.recognize_attention import RecognizeAttention

SPLIT = (2, 9, 3, 8)  # batch, sequence, heads, size


def heads(emit: Any, x: Any, axes: Any = (0, 2, 1, 3)) -> Any:
    return emit(R.permute_dims(emit(R.reshape(x, SPLIT)), list(axes)))


def exported(emit: Any, q: Any, k: Any, v: Any, scores: Any) -> Any:
    """As PyTorch exports it: heads split, key transposed at once, heads joined behind."""
    q, kt, v = heads(emit, q), heads(emit, k, (0, 2, 3, 1)), heads(emit, v)
    weights = emit(R.nn.softmax(scores(emit, emit(R.matmul(q, kt))), -1))
    y = emit(R.permute_dims(emit(R.matmul(weights, v)), [0, 2, 1, 3]))
    return emit(R.reshape(y, (2, 9, 24)))


FLAT = [(2, 9, 24)] * 3
MASK = const(-10 * np.abs(random(2, 1, 1, 9)))
SCORES = {
    "plain": lambda emit, s: s,
    "divided": lambda emit, s: emit(R.divide(s, const(2.5))),
    "scaled and masked": lambda emit, s: emit(R.add(emit(R.multiply(s, const([0.4]))), MASK)),
    "mask on the left": lambda emit, s: emit(R.add(MASK, s)),
    "two masks": lambda emit, s: emit(R.add(emit(R.add(s, MASK)), const(random(9, 9)))),
    "scaled twice": lambda emit, s: emit(R.divide(emit(R.multiply(s, const(0.5))), const(1.5))),
}


@pytest.mark.parametrize("name", SCORES)
def test_as_exported(name: str) -> None:
    mod = build(lambda emit, q, k, v: exported(emit, q, k, v, SCORES[name]), *FLAT)
    result = apply(RecognizeAttention(), mod)
    found = ops(result.mod)
    assert found.count("attention") + found.count("attention_bias") == 1
    assert "matmul" not in found and "softmax" not in found and len(result.fired) == 1
    # Queries, keys and values are read as the reshapes give them: only the result is turned, there and back.
    assert found.count("permute_dims") == 2
    same_output(mod, result.mod, *(random(*s, seed=i) for i, s in enumerate(FLAT)), tolerance=1e-5)
    assert apply(RecognizeAttention(), result.mod).fired == ()


def test_scaled_operands() -> None:
    """As PyTorch exports scaled_dot_product_attention: both operands are multiplied by the root of the scale."""

    def body(emit: Any, q: Any, kt: Any, v: Any) -> Any:
        q, kt = emit(R.multiply(q, const(0.5))), emit(R.divide(kt, const([1.25])))
        return emit(R.matmul(emit(R.nn.softmax(emit(R.multiply(emit(R.matmul(q, kt)), const(1.5))))), v))

    shapes = [(2, 3, 5, 8), (2, 3, 8, 7), (2, 3, 7, 6)]
    mod = build(body, *shapes)
    result = apply(RecognizeAttention(), mod)
    assert "attention" in ops(result.mod) and not {"multiply", "divide", "matmul"} & set(ops(result.mod))
    same_output(mod, result.mod, *(random(*s, seed=i) for i, s in enumerate(shapes)), tolerance=1e-5)


@pytest.mark.parametrize("factor", [random(8), np.float32(0)])
def test_keeps_scales_that_are_no_number(factor: Any) -> None:
    """A vector, and zero, which would lose what is infinite."""

    def body(emit: Any, q: Any, kt: Any, v: Any) -> Any:
        return chain(emit, emit(R.multiply(q, const(factor))), kt, v)

    result = apply(RecognizeAttention(), build(body, (3, 5, 8), (3, 8, 7), (3, 7, 6)))
    assert {"multiply", "attention"} <= set(ops(result.mod))


@pytest.mark.parametrize(
    ("q", "kt", "v", "mask"),
    [
        ((5, 8), (8, 7), (7, 6), (5, 7)),
        ((3, 5, 8), (3, 8, 7), (3, 7, 6), (3, 5, 7)),
        ((3, 5, 8), (3, 8, 7), (3, 7, 6), (1, 7)),
        ((2, 2, 1, 5, 8), (2, 2, 1, 8, 7), (2, 2, 1, 7, 6), (7,)),
        ((2, 3, 1, 8), (2, 3, 8, 7), (2, 3, 7, 6), (3, 1, 7)),
    ],
)
def test_ranks_and_cross_attention(q: Any, kt: Any, v: Any, mask: Any) -> None:
    def body(emit: Any, q: Any, kt: Any, v: Any, mask: Any) -> Any:
        return emit(R.matmul(emit(R.nn.softmax(emit(R.add(emit(R.matmul(q, kt)), mask)))), v))

    mod = build(body, q, kt, v, mask)
    result = apply(RecognizeAttention(), mod)
    assert "attention_bias" in ops(result.mod) and "matmul" not in ops(result.mod)
    same_output(mod, result.mod, *(random(*s, seed=i) for i, s in enumerate((q, kt, v, mask))), tolerance=1e-5)


def chain(emit: Any, q: Any, kt: Any, v: Any, between: Any = lambda emit, s: s, axis: int = -1) -> Any:
    return emit(R.matmul(emit(R.nn.softmax(between(emit, emit(R.matmul(q, kt))), axis)), v))


def weights_too(emit: Any, q: Any, kt: Any, v: Any) -> Any:
    weights = emit(R.nn.softmax(emit(R.matmul(q, kt))))
    return emit(R.matmul(weights, v)), emit(R.exp(weights))


def scores_too(emit: Any, q: Any, kt: Any, v: Any) -> Any:
    scores = emit(R.matmul(q, kt))
    return emit(R.matmul(emit(R.nn.softmax(scores)), v)), emit(R.exp(scores))


REFUSED = {
    "another axis": (lambda e, *x: chain(e, *x, axis=1), "not over the last axis"),
    "weights are an output": (weights_too, "weights are read elsewhere"),
    "scores are an output": (scores_too, "scores are read elsewhere"),
    "an operator between": (lambda e, *x: chain(e, *x, between=lambda e, s: e(R.tanh(s))), "stands tanh"),
    "mask before scale": (
        lambda e, *x: chain(e, *x, between=lambda e, s: e(R.multiply(e(R.add(s, const(random(7)))), const(0.5)))),
        "before scaling",
    ),
    "a mask of one key": (
        lambda e, *x: chain(e, *x, between=lambda e, s: e(R.add(s, const(random(5, 1))))),
        "mask of shape",
    ),
    "a vector of scales": (
        lambda e, *x: chain(e, *x, between=lambda e, s: e(R.multiply(s, const(random(7))))),
        "stands multiply",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    body, reason = REFUSED[name]
    mod = build(body, (3, 5, 8), (3, 8, 7), (3, 7, 6))
    result = apply(RecognizeAttention(), mod)
    assert result.mod.same_as(mod) and any(reason in e.detail for e in result.skipped)


def test_refuses_batches_that_broadcast_and_other_types() -> None:
    result = apply(RecognizeAttention(), build(chain, (3, 5, 8), (1, 8, 7), (3, 7, 6)))
    assert not result.fired and "batch dimensions" in result.skipped[0].detail
    result = apply(RecognizeAttention(), build(chain, (3, 5, 8), (3, 8, 7), (3, 7, 6), dtype="float64"))
    assert not result.fired and "float64" in result.skipped[0].detail


def test_leaves_other_matmuls_alone() -> None:
    result = apply(RecognizeAttention(), build(lambda emit, a, b: emit(R.matmul(a, b)), (3, 5), (5, 2)))
    assert not result.fired and not result.skipped
