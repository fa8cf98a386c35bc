"""simplify-algebra's rules for broadcasts: they move down, past casts and reductions, and vanish in what broadcasts."""

from typing import Any

import pytest
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, ops, random, rewritten, same_output
from tvm_ext.passes.simplification.simplify_algebra import SimplifyAlgebra

X, Y = (2, 5, 3), (2, 5, 1)


def wide(emit: Any, y: Any) -> Any:
    return emit(R.broadcast_to(y, X))


def pooled(emit: Any, x: Any, y: Any) -> Any:
    """Mean over the rows that a mask keeps, as sentence encoders write it."""
    mask = emit(R.astype(emit(R.broadcast_to(emit(R.astype(y, "int64")), X)), "float32"))
    total = emit(R.sum(emit(R.multiply(x, mask)), [1]))
    return emit(R.divide(total, emit(R.maximum(emit(R.sum(mask, [1])), const(1e-9)))))


RULES = {
    "operand on the right": (lambda emit, x, y: emit(R.multiply(x, wide(emit, y))), ["multiply"]),
    "operand on the left": (lambda emit, x, y: emit(R.subtract(wide(emit, y), x)), ["subtract"]),
    "one number": (lambda emit, x, y: emit(R.maximum(wide(emit, y), const(0.5))), ["maximum", "broadcast_to"]),
    "cast": (lambda emit, x, y: emit(R.astype(wide(emit, y), "float64")), ["astype", "broadcast_to"]),
    "sum": (lambda emit, x, y: emit(R.sum(wide(emit, y), [1])), ["sum", "broadcast_to"]),
    "maximum kept": (lambda emit, x, y: emit(R.max(wide(emit, y), [1], True)), ["max", "broadcast_to"]),
}


@pytest.mark.parametrize(("body", "want"), RULES.values(), ids=RULES)
def test_rule(body: Any, want: list[str]) -> None:
    result = rewritten(SimplifyAlgebra(), build(body, X, Y))
    assert ops(result.mod) == want
    assert apply(SimplifyAlgebra(), result.mod).fired == ()


def test_nothing_of_a_mask_is_broadcast_in_memory() -> None:
    mod = build(pooled, X, Y)
    result = apply(SimplifyAlgebra(), mod)
    assert "broadcast_to" not in ops(apply(SimplifyAlgebra(), result.mod).mod)
    same_output(mod, result.mod, random(*X), 2 + random(*Y, seed=1))


LEFT = {
    "one of two": (
        lambda emit, x, y: emit(R.add(wide(emit, y), emit(R.broadcast_to(emit(R.exp(y)), X)))),
        ["broadcast_to", "exp", "add"],
    ),
    "reduced along it": (lambda emit, x, y: emit(R.sum(wide(emit, y), [2])), ["broadcast_to", "sum"]),
    "cast of what others read": (
        lambda emit, x, y: (emit(R.astype(v := wide(emit, y), "float64")), emit(R.exp(v))),
        ["broadcast_to", "astype", "exp"],
    ),
}


@pytest.mark.parametrize(("body", "want"), LEFT.values(), ids=LEFT)
def test_what_must_stay(body: Any, want: list[str]) -> None:
    assert sorted(ops(apply(SimplifyAlgebra(), build(body, X, Y)).mod)) == sorted(want)
