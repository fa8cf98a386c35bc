"""recognize-attention: every way exporters write it, and what only looks like it."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, ops, random, rewritten, untouched
from tvm_ext.passes.simplification.recognize_attention import RecognizeAttention

SPLIT = (2, 9, 3, 8)  # batch, sequence, heads, size
#: Queries, transposed keys and values.
SMALL = ((3, 5, 8), (3, 8, 7), (3, 7, 6))


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
    result = rewritten(RecognizeAttention(), mod, tolerance=1e-5)
    operators = ops(result.mod)
    assert operators.count("attention") + operators.count("attention_bias") == 1
    assert "matmul" not in operators and "softmax" not in operators and len(result.fired) == 1
    # Queries, keys and values are read as the reshapes give them: only the result is turned, there and back.
    assert operators.count("permute_dims") == 2
    assert apply(RecognizeAttention(), result.mod).fired == ()


def test_scaled_operands() -> None:
    """As PyTorch exports scaled_dot_product_attention: both operands are multiplied by the root of the scale."""

    def body(emit: Any, q: Any, kt: Any, v: Any) -> Any:
        q, kt = emit(R.multiply(q, const(0.5))), emit(R.divide(kt, const([1.25])))
        return emit(R.matmul(emit(R.nn.softmax(emit(R.multiply(emit(R.matmul(q, kt)), const(1.5))))), v))

    mod = build(body, (2, 3, 5, 8), (2, 3, 8, 7), (2, 3, 7, 6))
    operators = ops(rewritten(RecognizeAttention(), mod, tolerance=1e-5).mod)
    assert "attention" in operators and not {"multiply", "divide", "matmul"} & set(operators)


@pytest.mark.parametrize("factor", [random(8), np.float32(0)])
def test_keeps_scales_that_are_no_number(factor: Any) -> None:
    """A vector, and zero, which would lose what is infinite."""
    mod = build(lambda emit, q, kt, v: chain(emit, emit(R.multiply(q, const(factor))), kt, v), *SMALL)
    assert {"multiply", "attention"} <= set(ops(apply(RecognizeAttention(), mod).mod))


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

    operators = ops(rewritten(RecognizeAttention(), build(body, q, kt, v, mask), tolerance=1e-5).mod)
    assert "attention_bias" in operators and "matmul" not in operators


def chain(emit: Any, q: Any, kt: Any, v: Any, between: Any = lambda emit, s: s, axis: int = -1) -> Any:
    return emit(R.matmul(emit(R.nn.softmax(between(emit, emit(R.matmul(q, kt))), axis)), v))


def weights_too(emit: Any, q: Any, kt: Any, v: Any) -> Any:
    weights = emit(R.nn.softmax(emit(R.matmul(q, kt))))
    return emit(R.matmul(weights, v)), emit(R.exp(weights))


def scores_too(emit: Any, q: Any, kt: Any, v: Any) -> Any:
    scores = emit(R.matmul(q, kt))
    return emit(R.matmul(emit(R.nn.softmax(scores)), v)), emit(R.exp(scores))


def between(step: Any) -> Any:
    """Attention with a step between scores and softmax."""
    return lambda emit, *x: chain(emit, *x, between=lambda emit, scores: emit(step(emit, scores)))


REFUSED = {
    "another axis": (lambda emit, *x: chain(emit, *x, axis=1), "not over the last axis"),
    "weights are an output": (weights_too, "weights are read elsewhere"),
    "scores are an output": (scores_too, "scores are read elsewhere"),
    "an operator between": (between(lambda emit, s: R.tanh(s)), "stands tanh"),
    "mask before scale": (
        between(lambda emit, s: R.multiply(emit(R.add(s, const(random(7)))), const(0.5))), "before scaling"),
    "a mask of one key": (between(lambda emit, s: R.add(s, const(random(5, 1)))), "mask of shape"),
    "a vector of scales": (between(lambda emit, s: R.multiply(s, const(random(7)))), "stands multiply"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses(body: Any, reason: str) -> None:
    assert any(reason in detail for detail in untouched(RecognizeAttention(), build(body, *SMALL)))


def test_refuses_batches_that_broadcast_and_other_types() -> None:
    assert "batch dimensions" in untouched(RecognizeAttention(), build(chain, (3, 5, 8), (1, 8, 7), (3, 7, 6)))[0]
    assert "float64" in untouched(RecognizeAttention(), build(chain, *SMALL, dtype="float64"))[0]


def test_leaves_other_matmuls_alone() -> None:
    mod = build(lambda emit, a, b: emit(R.matmul(a, b)), (3, 5), (5, 2))
    assert untouched(RecognizeAttention(), mod) == []
