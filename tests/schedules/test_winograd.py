"""The transforms are exact in exact arithmetic; the weight layout holds G g G^T."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tvm_ext.schedules.winograd import TRANSFORMS, WinogradWeight


def exact(matrix: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(c)).limit_denominator(1000) for c in row] for row in matrix]


@pytest.mark.parametrize("m", TRANSFORMS)
def test_one_dimension_is_a_convolution(m: int) -> None:
    """A^T [(G g) * (B^T d)] = the m outputs of a 3-tap filter, with rational numbers."""
    transform, rng = TRANSFORMS[m], np.random.default_rng(0)
    d = [Fraction(int(v)) for v in rng.integers(-9, 9, transform.alpha)]
    g = [Fraction(int(v)) for v in rng.integers(-9, 9, 3)]
    bt, gm, at = exact(transform.bt), exact(transform.g), exact(transform.at)
    u = [sum(c * v for c, v in zip(row, g, strict=True)) for row in gm]
    v = [sum(c * x for c, x in zip(row, d, strict=True)) for row in bt]
    y = [sum(c * a * b for c, a, b in zip(row, u, v, strict=True)) for row in at]
    assert y == [sum(g[k] * d[i + k] for k in range(3)) for i in range(m)]


@pytest.mark.parametrize("m", TRANSFORMS)
@pytest.mark.parametrize(("o", "i", "inner", "out", "blocks"), [(16, 8, 8, 8, 2), (17, 12, 4, 16, 3)])
def test_weight_layout(m: int, o: int, i: int, inner: int, out: int, blocks: int) -> None:
    w = np.random.default_rng(1).standard_normal((o, i, 3, 3)).astype("float32")
    layout = WinogradWeight.make(m, inner, out, blocks)
    packed, g = layout.pack(w), TRANSFORMS[m].g
    assert packed.shape == layout.physical_shape(w.shape) and packed.dtype == w.dtype
    for c, k in np.ndindex(o, i):
        want = (g @ w[c, k].astype("float64") @ g.T).reshape(-1)
        np.testing.assert_allclose(packed[:, c // out, k // inner, k % inner, c % out], want, rtol=2.0**-23, atol=1e-9)
    outputs = packed.transpose(1, 4, 0, 2, 3).reshape(blocks * out, -1)
    assert not outputs[o:].any()
    with pytest.raises(TypeError, match="transformed weight"):
        layout.index((0, 0, 0, 0))
