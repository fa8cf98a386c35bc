"""Weights in words: where each element lies, and the sums in front."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tvm_ext.core.numbers.dot_weight import DotWeight


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_every_element_of_a_convolution(dtype: str) -> None:
    rng, (o, i, kh, kw) = np.random.default_rng(0), (19, 10, 3, 2)
    w = rng.integers(0, 100, (o, i, kh, kw)).astype(dtype)
    layout = DotWeight.of(4, inner=3, out=16, blocks=2, group=4, shift=7)
    packed = layout.pack(w)
    assert packed.shape == layout.physical_shape(w.shape) == (2, 1 + 3 * kh * kw, 16, 4)
    assert packed.dtype == w.dtype
    signed = packed.view("int8")
    zero = 128 if dtype == "uint8" else 0
    for at in np.ndindex(*w.shape):
        b, c, y, x = at
        step = 1 + (y * kw + x) * 3 + c // 4
        assert signed[b // 16, step, b % 16, c % 4] == int(w[at]) - zero
    sums = signed[:, 0].reshape(2, 4, 16).transpose(0, 2, 1).copy().view("<i4").reshape(-1)
    np.testing.assert_array_equal(sums[:o], 7 * (w.astype(int) - zero).sum(axis=(1, 2, 3)))
    assert not sums[o:].any()
    assert not signed[:, 3::3, :, 2:].any()  # channels beyond the tenth


def test_words_that_run_over_a_row_of_the_kernel() -> None:
    rng, (o, i, kh, kw) = np.random.default_rng(2), (17, 3, 2, 7)
    w = rng.integers(-128, 128, (o, i, kh, kw)).astype("int8")
    layout = replace(DotWeight.of(4, inner=6, out=16, blocks=2, group=4, shift=5), rows=True)
    packed = layout.pack(w)
    assert packed.shape == layout.physical_shape(w.shape) == (2, 1 + 6 * kh, 16, 4)
    for at in np.ndindex(*w.shape):
        b, c, y, x = at
        element = x * i + c
        assert packed[b // 16, 1 + y * 6 + element // 4, b % 16, element % 4] == w[at]
    assert not packed[:, 6::6, :, 1:].any()  # elements beyond the 21st
    plain = DotWeight.of(4, inner=1, out=16, blocks=2, group=4, shift=5).pack(w)
    np.testing.assert_array_equal(packed[:, 0], plain[:, 0])
    assert str(layout) == "OHWI6i16o4i+sums"


def test_a_matmul_in_bfloat16() -> None:
    w = np.random.default_rng(1).standard_normal((5, 3)).astype(ml_dtypes.bfloat16)
    layout = DotWeight.of(2, inner=1, out=16, blocks=1, group=2, shift=None)
    packed = layout.pack(w)
    assert packed.shape == layout.physical_shape(w.shape) == (1, 3, 16, 2)
    np.testing.assert_array_equal(packed[0, 1, :3], w[2:4].T)
    assert not packed[0, 2, :, 1].astype("float32").any()


def test_its_name() -> None:
    assert str(DotWeight.of(4, 4, 32, 2, 4, 3)) == "OIHW4i32o4i+sums"
    assert str(DotWeight.of(2, 8, 32, 2, 2, None)) == "IO8i32o2i"
