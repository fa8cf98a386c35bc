"""Zero points folded into constants: numbers against the definition, at the edges of the range too."""

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, GemmLayer, Matrix, Step, conv2d, filter_matrices
from tvm_ext.byoc.systolic.code.program import Tensor
from tvm_ext.byoc.systolic.lowering.operands import signed_zero_point
from tvm_ext.byoc.systolic.lowering.products import integer_weights, zero_point_row
from tvm_ext.byoc.systolic.simulation.functional import run

from ..cases import SMALL_INT8, direct_conv2d


@pytest.mark.parametrize("x_zero", [0, 7, 255])
@pytest.mark.parametrize("w_zero", [0, 100, 255, "channel"])
def test_matmul_integer_of_uint8(x_zero: int, w_zero: int | str) -> None:
    """Weights of uint8 with any zero point: one to three parts of int8."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((11, 70), (70, 9)))
    w[0], x[0] = 255, 255
    zero = rng.integers(0, 256, 9) if w_zero == "channel" else w_zero
    centered = w[None].astype(np.int32) - np.asarray(zero, np.int32)
    b, parts = integer_weights(centered)
    row = zero_point_row(centered, signed_zero_point(x_zero, "uint8"))
    steps = (Step("add", row=row, dtype="int32"),)
    layer = GemmLayer("fc", 11, 70, 9, Matrix("x", 70), b, Matrix("y", 9), parts=parts, steps=steps)
    tensors = [Tensor("x", "input", x.shape, "uint8"), Tensor("y", "output", (11, 9), "int32")]
    y = run(lower([layer], tensors, SMALL_INT8), {"x": x})["y"]
    np.testing.assert_array_equal(y, (x.astype(np.int64) - x_zero) @ (w.astype(np.int64) - zero))
    assert parts == (3 if w_zero == 0 else 2)


def test_parts_sum_up() -> None:
    w = np.arange(256, dtype=np.int32).reshape(1, 16, 16)
    for zero in (0, 1, 127, 128, 129, 255):
        b, parts = integer_weights(w - zero)
        assert b.dtype == np.int8 and parts == {0: 3, 128: 1}.get(zero, 2)
        np.testing.assert_array_equal(b.reshape(parts, 16, 16).astype(int).sum(0), w[0] - zero)


@pytest.mark.parametrize("x_zero", [-128, 3, 127])
@pytest.mark.parametrize("groups", [1, 2])
def test_qdq_convolution(x_zero: int, groups: int) -> None:
    """Padding is the zero point of x; per channel scales; bias; relu; halves to even."""
    rng = np.random.default_rng(x_zero + 200)
    geometry = ConvGeometry(4 // groups, (9, 7), (3, 3), strides=(2, 1), padding=(1, 1, 1, 1))
    x, w = (rng.integers(-128, 128, s, dtype=np.int8) for s in ((2, 4, 9, 7), (6, 4 // groups, 3, 3)))
    bias, scale = rng.integers(-5000, 5000, 6), 2.0 ** rng.integers(-9, -6, 6)
    filters = filter_matrices(w.astype(np.int32), groups)
    b, parts = integer_weights(filters)
    row = zero_point_row(filters, x_zero) + bias.reshape(groups, -1).astype(np.int32)
    steps = (
        Step("add", row=row, dtype="int32"),
        Step("dequantize", row=scale.reshape(groups, -1).astype(np.float32)),
        Step("relu"),
        Step("quantize", scale=0.5, zero_point=11),
    )
    layer = conv2d("c", "x", b, "y", geometry, images=2, groups=groups, pad_value=x_zero, steps=steps, parts=parts)
    shape = (2, 6, *geometry.out_size)
    tensors = [Tensor("x", "input", x.shape, "int8"), Tensor("y", "output", shape, "int8")]
    y = run(lower([layer], tensors, SMALL_INT8), {"x": x})["y"]
    sums = direct_conv2d(x.astype(np.int64) - x_zero, w.astype(np.int64), geometry) + bias[:, None, None]
    real = np.maximum(sums * scale[:, None, None], 0)
    np.testing.assert_array_equal(y, np.clip(np.rint(real / 0.5) + 11, -128, 127))


def test_a_zero_point_row_wraps_as_the_sums_do() -> None:
    """Each term passes 2^31, their sum does not."""
    w = np.full((1, 140_000, 1), 127, np.int8)
    row = zero_point_row(w, 127)
    assert row.item() == (-127 * 127 * 140_000 + 2**31) % 2**32 - 2**31
