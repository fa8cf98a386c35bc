"""The vector unit against float64 formulas and those of ONNX, as epilogues of a layer."""

import math

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import Vector
from tvm_ext.byoc.systolic.code.layer import Matrix, Step
from tvm_ext.byoc.systolic.code.program import Tensor
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.vector import apply, erf
from tvm_ext.core.errors import ProgramError

from ..cases import SMALL_FLOAT, SMALL_INT8, dense, gelu, random_float, random_int8

SIZES = (13, 29, 19)


def test_erf() -> None:
    x = np.linspace(-6, 6, 100_001, dtype=np.float32)
    exact = np.array([math.erf(value) for value in x.astype(float)])
    assert np.abs(erf(x) - exact).max() < 5e-7
    assert erf(np.float32([-np.inf, -5, 5, np.inf])).tolist() == [-1, -1, 1, 1]


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("op", ["relu", "gelu", "gelu_tanh"])
def test_float_epilogues(op: str) -> None:
    """bias, residual, factor, activation."""
    rng = np.random.default_rng(0)
    m, k, n = SIZES
    x, w, bias, residual = (random_float(rng, shape) for shape in ((m, k), (k, n), (n,), (m, n)))
    steps = [Step("add", row=bias), Step("add", tile=Matrix("r", n)), Step("multiply", scale=0.3), Step(op)]
    program = dense(SMALL_FLOAT, SIZES, w, steps, more=[Tensor("r", "input", (m, n), "float32")])
    y = run(program, {"x": x, "r": residual})["y"]
    before = (x.astype(float) @ w + bias + residual) * 0.3
    activation = {"relu": lambda v: np.maximum(v, 0), "gelu": gelu, "gelu_tanh": gelu_tanh}[op]
    np.testing.assert_allclose(y, activation(before), rtol=1e-5, atol=1e-5)


def test_a_row_of_factors() -> None:
    rng = np.random.default_rng(1)
    x, w, row = random_float(rng, (5, 8)), random_float(rng, (8, 7)), random_float(rng, (7,))
    y = run(dense(SMALL_FLOAT, (5, 8, 7), w, [Step("multiply", row=row)]), {"x": x})["y"]
    np.testing.assert_allclose(y, (x.astype(float) @ w) * row, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("out_dtype", ["int8", "uint8"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_requantization_is_that_of_onnx(out_dtype: str, per_channel: bool) -> None:
    """The formulas of DequantizeLinear and QuantizeLinear in float32; scales are powers of two, so halves are exact."""
    rng = np.random.default_rng(2)
    m, k, n = SIZES
    x, w, bias = random_int8(rng, (m, k)), random_int8(rng, (k, n)), rng.integers(-9999, 9999, n, dtype=np.int32)
    scale = 2.0 ** rng.integers(-9, -6, n) if per_channel else np.full(n, 2.0**-8)
    y_zero = {"int8": -7, "uint8": 200}[out_dtype]
    steps = [
        Step("add", row=bias, dtype="int32"),
        Step("dequantize", row=scale.astype(np.float32)),
        Step("relu"),
        Step("quantize", scale=0.5, zero_point=y_zero - (128 if out_dtype == "uint8" else 0)),
    ]
    y = run(dense(SMALL_INT8, SIZES, w, steps, out_dtype), {"x": x})["y"]
    real = np.maximum((x.astype(np.int64) @ w.astype(np.int64) + bias) * scale, 0)
    limits = np.iinfo(out_dtype)
    expected = np.clip(np.rint(real / 0.5) + y_zero, limits.min, limits.max)
    assert (np.mod(real / 0.5, 1) == 0.5).any()  # halves, which go to the even neighbour, do occur
    assert y.dtype == out_dtype
    np.testing.assert_array_equal(y, expected)


def test_a_quantized_residual() -> None:
    """quantize, dequantize again, add a dequantized tile, quantize: what stands in QDQ models."""
    rng = np.random.default_rng(3)
    m, k, n = SIZES
    x, w, r = random_int8(rng, (m, k)), random_int8(rng, (k, n)), rng.integers(0, 256, (m, n), dtype=np.uint8)
    steps = [
        Step("dequantize", scale=2.0**-7),
        Step("quantize", scale=2.0, zero_point=5),
        Step("dequantize", scale=2.0, zero_point=5),
        Step("add", tile=Matrix("r", n), dtype="int8", scale=0.25, zero_point=100 - 128),
        Step("quantize", scale=4.0, zero_point=-128),
    ]
    program = dense(SMALL_INT8, SIZES, w, steps, "int8", [Tensor("r", "input", (m, n), "uint8")])
    y = run(program, {"x": x, "r": r})["y"]
    inner = np.clip(np.rint((x.astype(np.int64) @ w.astype(np.int64)) / 256) + 5, -128, 127)
    total = (inner - 5) * 2 + (r.astype(int) - 100) * 0.25
    np.testing.assert_array_equal(y, np.clip(np.rint(total / 4) - 128, -128, 127))


def test_int32_epilogue_wraps() -> None:
    x, w = np.full((2, 4), 100, np.int8), np.full((4, 3), 100, np.int8)
    row = np.array([2**31 - 1, -(2**31), 2**31 - 40_001], np.int32)
    y = run(dense(SMALL_INT8, (2, 4, 3), w, [Step("add", row=row, dtype="int32")]), {"x": x})["y"]
    wrapped = (row.astype(np.int64) + 40_000 + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(y, np.broadcast_to(wrapped, (2, 3)))


def test_what_is_no_number() -> None:
    """NaN becomes the zero point, infinities saturate; relu keeps NaN."""
    values = np.array([[np.nan, np.inf, -np.inf, 1.0]], np.float32)
    words = values.view(np.int32).copy()
    apply(Vector("quantize", 0, 1, 4, scale=1.0, zero_point=3), words, None)
    assert words.tolist() == [[3, 127, -128, 4]]
    words = values.view(np.int32).copy()
    apply(Vector("relu", 0, 1, 4), words, None)
    np.testing.assert_array_equal(words.view(np.float32), [[np.nan, np.inf, 0, 1]])


def test_int32_relu() -> None:
    words = np.array([[-5, 7]], np.int32)
    apply(Vector("relu", 0, 1, 2, dtype="int32"), words, None)
    assert words.tolist() == [[0, 7]]


@pytest.mark.parametrize(
    ("steps", "out_dtype", "message"),
    [
        ([Step("relu")], "int32", r"step 0 \(relu\) takes float32, and the accumulator holds int32"),
        ([Step("dequantize")], "int32", "ends in float32, and its output y is int32"),
        ([Step("dequantize"), Step("dequantize")], "float32", r"step 1 \(dequantize\) takes int32"),
        ([Step("add", row=np.zeros(3, np.int32), dtype="int32")], "int32", r"a row of shape \(3,\)"),
        ([Step("add", row=np.zeros(4, np.float32), dtype="int32")], "int32", "both float32 or both int32"),
        ([Step("add", tile=Matrix("x", 4), dtype="int32")], "int32", "tensor x is int8, and the step takes int32"),
        ([Step("add", tile=Matrix("q", 4), dtype="int32")], "int32", "no tensor 'q'"),
    ],
)
def test_epilogues_that_do_not_fit(steps: list[Step], out_dtype: str, message: str) -> None:
    with pytest.raises(ProgramError, match=f"layer fc: .*{message}"):
        dense(SMALL_INT8, (4, 4, 4), np.ones((4, 4), np.int8), steps, out_dtype)
