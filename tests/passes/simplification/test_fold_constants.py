"""fold-constants: structure, values against numpy and TVM, and what it must leave alone."""

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, execute, ops, random, rewritten, untouched
from tvm_ext.core.graph.relax_graph import main_bindings, numpy_of
from tvm_ext.passes.simplification.fold_constants import FoldConstants

A, B = random(3, 5), random(3, 5, seed=1)
I32 = np.array([[-7, 7, 2**31 - 1], [5, -5, 0]], "int32")
J32 = np.array([[2, -2, 3], [3, 3, -4]], "int32")


def value_of(expression: Any) -> np.ndarray | None:
    """What the pass makes of an expression on constants; None if it leaves it."""
    return numpy_of(apply(FoldConstants(), build(lambda emit, x: emit(expression), (1,))).mod["main"].body.body)


def test_weight_transpose_disappears_and_the_output_stays() -> None:
    mod = build(lambda emit, x: emit(R.matmul(x, emit(R.permute_dims(const(random(7, 5)))))), (3, 5))
    result = rewritten(FoldConstants(), mod)
    assert ops(result.mod) == ["matmul"]
    assert [e.detail for e in result.fired] == ["permute_dims of constants computed"]


def test_chain_through_a_tuple_folds_in_one_run() -> None:
    def body(emit: Any, x: Any) -> Any:
        parts = emit(R.split(const(A), [2], 1))
        swapped = emit(R.concat([emit(R.nn.relu(parts[1])), parts[0]], 1))
        return emit(R.add(x, swapped))

    mod = build(body, (3, 5))
    result = apply(FoldConstants(), mod)
    assert ops(result.mod) == ["add"]
    want = np.concatenate([np.maximum(A[:, 2:], 0), A[:, :2]], 1)
    np.testing.assert_array_equal(numpy_of(main_bindings(result.mod)[0].value.args[1]), want)
    assert apply(FoldConstants(), result.mod).fired == ()


F32_CASES = {
    "reshape": (lambda: R.reshape(const(A), (5, 3)), lambda: A.reshape(5, 3)),
    "squeeze": (lambda: R.squeeze(const(A[None]), [0]), lambda: A),
    "expand_dims": (lambda: R.expand_dims(const(A), [0, -1]), lambda: A[None, :, :, None]),
    "broadcast_to": (lambda: R.broadcast_to(const(A[:1]), (4, 5)), lambda: np.broadcast_to(A[:1], (4, 5))),
    "strided_slice": (lambda: R.strided_slice(const(A), [0, 1], [2, 1], [-9, 5], [-1, 2]), lambda: A[::-1, 1::2]),
    "take": (lambda: R.take(const(A), const([2, 0], "int64"), 0), lambda: A[[2, 0]]),
    "astype": (lambda: R.astype(const(A), "int32"), lambda: A.astype("int32")),
    "where": (lambda: R.where(const(A > 0, "bool"), const(A), const(B)), lambda: np.where(A > 0, A, B)),
    "mean": (lambda: R.mean(const(A), [1], keepdims=True), lambda: A.astype("f8").mean(1, keepdims=True).astype("f4")),
    "sum": (lambda: R.sum(const(A)), lambda: A.astype("f8").sum().astype("f4")),
    "max": (lambda: R.max(const(A), [0]), lambda: A.max(0)),
    "matmul": (lambda: R.matmul(const(A), const(B.T)), lambda: (A.astype("f8") @ B.T.astype("f8")).astype("f4")),
    "full": (lambda: R.full((2, 3), const(1.5), "float32"), lambda: np.full((2, 3), 1.5, "f4")),
    "arange": (lambda: R.arange(1, 9, 3), lambda: np.arange(1, 9, 3)),
    "greater": (lambda: R.greater(const(A), const(B)), lambda: A > B),
    "clip": (lambda: R.clip(const(A), -0.5, 0.5), lambda: np.clip(A, np.float32(-0.5), np.float32(0.5))),
    "NaN": (lambda: R.maximum(const([np.nan, 1.0]), const([0.0, 2.0])), lambda: np.array([np.nan, 2.0], "f4")),
}


@pytest.mark.parametrize(("expression", "want"), F32_CASES.values(), ids=F32_CASES)
def test_values_equal_numpy(expression: Any, want: Any) -> None:
    got, expected = value_of(expression()), want()
    assert got is not None and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_values_equal_what_tvm_computes() -> None:
    """Every elementwise operator at once: the same expressions on inputs (run) and on constants (folded)."""
    unary = [R.exp, R.tanh, R.sigmoid, R.erf, R.negative, R.abs, R.nn.relu, R.square, R.floor, R.ceil, R.trunc]
    binary = [R.add, R.subtract, R.multiply, R.divide, R.maximum, R.minimum, R.less, R.equal, R.floor_divide]
    positive = [R.log, R.sqrt, R.rsqrt]

    def body(emit: Any, x: Any, y: Any) -> Any:
        size = emit(R.abs(x))
        values = [f(x) for f in unary] + [f(x, y) for f in binary] + [f(size) for f in positive] + [R.power(size, y)]
        return tuple(emit(v) for v in values)

    run = build(body, A.shape, A.shape)
    fold = apply(FoldConstants(), build(lambda emit, x: body(emit, const(A), const(B)), (1,)))
    assert fold.skipped == () and ops(fold.mod) == []
    outputs = execute(run, A, B)
    assert len(outputs) == len(unary) + len(binary) + len(positive) + 1
    for ours, theirs in zip(execute(fold.mod, A[0, :1]), outputs, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_integers_wrap_and_divide_as_tvm_does() -> None:
    binary = [R.add, R.multiply, R.divide, R.floor_divide, R.mod, R.floor_mod]
    run = build(lambda emit, x, y: tuple(emit(f(x, y)) for f in binary), I32.shape, I32.shape, dtype="int32")
    constants = [const(I32, "int32"), const(J32, "int32")]
    fold = apply(FoldConstants(), build(lambda emit, x: tuple(emit(f(*constants)) for f in binary), (1,)))
    assert ops(fold.mod) == []
    for ours, theirs in zip(execute(fold.mod, A[0, :1]), execute(run, I32, J32), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_shapes_of_inputs_become_static() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(R.add(emit(R.reshape(x, emit(R.shape_of(x)))), emit(R.zeros_like(x))))

    result = apply(FoldConstants(), build(body, (3, 5)))
    assert ops(result.mod) == ["reshape", "add"]
    assert isinstance(main_bindings(result.mod)[0].value.args[1], relax.ShapeExpr)


REFUSED = {
    "dequantize": (lambda: R.dequantize(const([1], "int8"), const(0.5), const(0, "int8"), axis=0), "into floats"),
    "blow-up": (lambda: R.broadcast_to(const(A[:1]), (100_000, 5)), "over 1 MiB and over 4 times"),
    "zeros": (lambda: R.zeros((1000, 1000), "float32"), "over 1 MiB"),
    "division by zero": (lambda: R.divide(const(I32, "int32"), const(0, "int32")), "division by zero"),
    "smallest by -1": (lambda: R.divide(const([-(2**31)], "int32"), const([-1], "int32")), "overflows"),
    "index outside": (lambda: R.take(const(A), const([3], "int64"), 0), "outside 0 .. 2"),
    "no evaluator": (lambda: R.nn.softmax(const(A)), "no evaluator"),
}


@pytest.mark.parametrize(("expression", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses(expression: Any, reason: str) -> None:
    (detail,) = untouched(FoldConstants(), build(lambda emit, x: emit(expression()), (1,)))
    assert reason in detail


def test_large_result_of_large_operand_is_folded() -> None:
    assert value_of(R.permute_dims(const(np.zeros((600, 700))))).shape == (700, 600)


def test_values_on_inputs_are_no_candidates() -> None:
    assert untouched(FoldConstants(), build(lambda emit, x: emit(R.add(x, const(A))), (3, 5))) == []


def test_what_has_no_element_is_a_constant() -> None:
    """Even of inputs, and where TVM's own operators cannot say the shape: 0 means "as it was" to a reshape."""

    def body(emit: Any, x: Any) -> Any:
        turned = emit(R.permute_dims(x, [1, 0]))
        return emit(R.add(emit(R.expand_dims(turned, 1)), const(random(16, 1, 1))))

    result = apply(FoldConstants(), build(body, (0, 16)))
    assert ops(result.mod) == []
    assert numpy_of(result.mod["main"].body.body).shape == (16, 1, 0)
    assert {e.detail for e in result.fired} == {"it has no element"}


def test_an_output_with_elements_made_of_none_stays_an_operator() -> None:
    result = apply(FoldConstants(), build(lambda emit, x: emit(R.sum(emit(R.nn.relu(x)), [0])), (0, 4)))
    value = numpy_of(result.mod["main"].body.body)
    assert value is None or not value.any()
