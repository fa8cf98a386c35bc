"""Matmuls of every form against float64 numpy: shapes, batches, transposed operands, epilogues; and what is refused."""

import math
import re
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.region import Operation
from tvm_ext.byoc.systolic.config import SystolicOptions
from tvm_ext.byoc.systolic.lowering.matmul import matmul_layer

from ..cases import SIZES, gelu, random_float, random_int8
from ..regions import composite, dequantize, matmul, op, permuted, refusal, region, reshaped, run, value


def close(result: np.ndarray, expected: np.ndarray) -> None:
    """Within 1e-5 of the range."""
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= 1e-5 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize("dataflow", [None, "os"])
def test_two_matrices(sizes: tuple[int, int, int], constant: bool, dataflow: str | None) -> None:
    rng = np.random.default_rng(sum(sizes))
    m, k, n = sizes
    x, w = random_float(rng, (m, k)), random_float(rng, (k, n))
    offloaded = region(composite(matmul(value("x", m, k), w if constant else value("w", k, n))))
    (y,) = run(offloaded, {"x": x, "w": w}, dataflow=dataflow)
    close(y, x.astype(float) @ w)


BATCHES = [
    ((2, 3, 5, 7), (2, 3, 7, 4)), ((2, 3, 5, 7), (7, 4)), ((2, 3, 5, 7), (3, 7, 4)), ((2, 3, 5, 7), (2, 1, 7, 4)),
    ((2, 1, 5, 7), (1, 3, 7, 4)), ((1, 3, 5, 7), (2, 3, 7, 4)), ((5, 7), (3, 7, 4)), ((11, 1, 7), (11, 7, 1)),
    ((1, 1, 1, 1), (1, 1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", BATCHES, ids=str)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_batches_that_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    rng = np.random.default_rng(5)
    x, w = (random_float(rng, shape) for shape in shapes)
    offloaded = region(composite(matmul(value("x", *x.shape), w if constant else value("w", *w.shape))))
    close(run(offloaded, {"x": x, "w": w})[0], x.astype(float) @ w)


def test_a_batch_that_lies_between_others() -> None:
    """[2, 1, 3] matrices for a batch of [2, 5, 3]: no load takes them in turn."""
    x, w = value("x", 2, 1, 3, 4, 4), value("w", 2, 5, 3, 4, 4)
    assert "x: float32[2, 1, 3, 4, 4]: no load walks through it" in refusal(matmul(x, w))


def test_one_constant_matrix_for_a_batch_is_one_gemm() -> None:
    """All rows of the batch are rows of one matrix: the weights are loaded once."""
    fused = composite(matmul(value("x", 2, 3, 5, 7), np.ones((7, 4), np.float32)))
    layer = matmul_layer(fused, SystolicOptions())
    assert (layer.batch, layer.m, layer.k, layer.n) == (1, 30, 7, 4)


def test_heads_of_attention_are_read_where_they_lie() -> None:
    """q and k come as [rows, heads * depth]; both are reshaped and transposed on the way: loads with strides."""
    rng = np.random.default_rng(2)
    q, k = random_float(rng, (5, 12)), random_float(rng, (6, 12))
    left = [reshaped(value("q", 5, 12), 1, 5, 3, 4)]
    left.append(permuted(left[0], 0, 2, 1, 3))
    right = [reshaped(value("k", 6, 12), 1, 6, 3, 4)]
    right.append(permuted(right[0], 0, 2, 3, 1))
    offloaded = region(composite(*left, *right, matmul(left[1], right[1])))
    expected = np.einsum("qhd,khd->hqk", q.reshape(5, 3, 4).astype(float), k.reshape(6, 3, 4))
    close(run(offloaded, {"q": q, "k": k})[0], expected[None])


def test_x_times_x_and_x_times_its_transpose() -> None:
    x = random_float(np.random.default_rng(3), (9, 9))
    (y,) = run(region(composite(matmul(value("x", 9, 9), value("x", 9, 9)))), {"x": x})
    close(y, x.astype(float) @ x)
    t = permuted(value("x", 9, 9), 1, 0)
    (y,) = run(region(composite(t, matmul(value("x", 9, 9), t))), {"x": x})
    close(y, x.astype(float) @ x.T)


# ------------------------------------------------------------ epilogues
def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("order", ["bias first", "residual first"])
def test_bias_residual_activation(activation: str, order: str) -> None:
    rng = np.random.default_rng(4)
    x, w, bias, residual = (random_float(rng, s) for s in ((7, 13), (13, 19), (19,), (7, 19)))
    product = matmul(value("x", 7, 13), w)
    others: list[Any] = [bias, value("r", 7, 19)]
    others = others if order == "bias first" else others[::-1]
    first = op("add", others[0], product) if order == "bias first" else op("add", product, others[0])
    second = op("add", first, others[1])
    offloaded = region(composite(product, first, second, op(f"nn.{activation}", second)))
    before = x.astype(float) @ w + bias + residual
    function = {"relu": lambda v: np.maximum(v, 0), "gelu": gelu, "gelu_tanh": gelu_tanh}[activation]
    expected = function(before)
    (y,) = run(offloaded, {"x": x, "r": residual})
    assert np.abs(y - expected).max() <= 1e-6 * np.abs(expected).max()


ADDENDS = [(19,), (1, 19), (1,), (), (1, 1, 1, 19), (3, 1, 19), (1, 3, 1, 1)]
TENSORS = [(2, 3, 7, 19), (7, 19), (3, 7, 19), (2, 1, 1, 19), (19,), (7, 1), (1, 1), (2, 3, 1, 1), ()]


@pytest.mark.parametrize(
    ("shape", "computed"), [*((shape, False) for shape in ADDENDS), *((shape, True) for shape in TENSORS)], ids=str
)
def test_addends_that_broadcast(shape: tuple[int, ...], computed: bool) -> None:
    """Constants that are the same for all rows; computed tensors by strides of 0: a mask, a bias, a scalar."""
    rng = np.random.default_rng(6)
    x, w, addend = random_float(rng, (2, 3, 7, 13)), random_float(rng, (13, 19)), random_float(rng, shape)
    product = matmul(value("x", *x.shape), w)
    operands = (value("r", *shape), product) if computed else (product, addend)
    offloaded = region(composite(product, op("add", *operands)))
    inputs = {"x": x, "r": addend} if computed else {"x": x}
    close(run(offloaded, inputs)[0], x.astype(float) @ w + addend)


def test_a_residual_that_looks_like_a_bias() -> None:
    """One row, so that bias and residual have one shape: what is constant is a row, what is computed is read."""
    rng = np.random.default_rng(8)
    x, w, bias, residual = (random_float(rng, s) for s in ((1, 5), (5, 5), (1, 5), (1, 5)))
    product = matmul(value("x", 1, 5), w)
    first = op("add", product, value("r", 1, 5))
    offloaded = region(composite(product, first, op("add", bias, first)))
    close(run(offloaded, {"x": x, "r": residual})[0], x.astype(float) @ w + bias + residual)


def test_x_is_its_own_residual() -> None:
    rng = np.random.default_rng(9)
    x, w = random_float(rng, (6, 6)), random_float(rng, (6, 6))
    product = matmul(value("x", 6, 6), w)
    close(run(region(composite(product, op("add", product, value("x", 6, 6)))), {"x": x})[0], x.astype(float) @ w + x)


def test_scores_with_factor_and_mask() -> None:
    rng = np.random.default_rng(10)
    q, k, mask = (random_float(rng, s) for s in ((2, 3, 5, 8), (2, 3, 6, 8), (2, 1, 1, 6)))
    t = permuted(value("k", 2, 3, 6, 8), 0, 1, 3, 2)
    product = matmul(value("q", 2, 3, 5, 8), t)
    scaled = op("multiply", product, np.float32(0.125))
    offloaded = region(composite(t, product, scaled, op("add", scaled, value("mask", 2, 1, 1, 6))))
    expected = q.astype(float) @ k.transpose(0, 1, 3, 2) * 0.125 + mask
    close(run(offloaded, {"q": q, "k": k, "mask": mask})[0], expected)


# ------------------------------------------------------------ refusals
X, W = value("x", 4, 6), np.ones((6, 5), np.float32)


def after(*tail: Any) -> list[Operation]:
    """A matmul with operations behind it; each is (operator, other operands ...)."""
    layer = [matmul(X, W)]
    for name, *operands in tail:
        layer.append(op(name, layer[-1], *operands))
    return layer


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([matmul(W.T, value("y", 6, 3))], r"first operand .* is a constant float32\[5, 6\]"),
        ([op("matmul", value("v", 6), W, shape=(5,))], "multiplies a vector"),
        ([matmul(X, np.ones((6, 5), np.float16))], "both alike|float32 is taken"),
        ([matmul(value("x", 4, 6, dtype="float64"), W, "float64")], r"x: float64\[4, 6\] is multiplied as it is"),
        (
            after(("add", np.ones((4, 5), np.float32))),
            r"adds a constant float32\[4, 5\], which differs from row to row",
        ),
        (after(("add", np.ones((4, 1), np.float32))), "differs from row to row"),
        (after(("add", np.ones((2, 4, 5), np.float32))), r"add_\d+: float32\[2, 4, 5\] broadcasts matmul_\d+"),
        (after(("add", value("r", 3, 4, 5))), "broadcasts"),
        (after(("add", np.ones(5, np.float64))), "adds a constant float64"),
        (after(("add", value("r", 4, 5, dtype="int32"))), "int32"),
        (after(("multiply", value("r", 5))), r"multiplies by r: float32\[5\]"),
        (after(("multiply", np.ones((4, 1), np.float32))), "constant row is taken"),
        (after(("nn.silu",)), "the vector unit has no relax.nn.silu"),
        ([(p := matmul(X, W)), op("add", p, p)], "as both operands"),
        ([(t := op("tanh", X)), matmul(t, W)], "is computed by relax.tanh here"),
    ],
)
def test_refusals(operations: list[Operation], reason: str) -> None:
    assert re.search(reason, refusal(*operations)), refusal(*operations)


def test_dtypes_that_the_array_does_not_multiply() -> None:
    assert "dtype='float32'" in refusal(matmul(X, W), dtype="int8")
    x = dequantize(value("q", 4, 6, dtype="int8"), 0.5)
    w = dequantize(random_int8(np.random.default_rng(0), (6, 5)), 0.5)
    assert "dtype='int8'" in refusal(x, w, matmul(x, w))
    assert "quantized, and" in refusal(x, matmul(x, W), dtype="int8")


def test_a_transposed_then_reshaped_tensor() -> None:
    t = permuted(value("x", 3, 4), 1, 0)
    r = reshaped(t, 2, 6)
    assert "transposed and then reshaped" in refusal(t, r, matmul(r, np.ones((6, 5), np.float32)))


def test_a_tile_that_fits_no_scratchpad() -> None:
    assert "no tile of a GEMM of 4x6x5 fits half of a scratchpad of 64" in refusal(matmul(X, W), scratchpad_bytes=64)
