"""The transforms are exact in exact arithmetic; the weight layout holds G g G^T."""

from fractions import Fraction

import numpy as np
import pytest

from tvm_ext.schedules.blocked.winograd import TILES, Transform, WinogradWeight

SIZES = [(m, r) for r, tiles in TILES.items() for m in tiles]


def exact(matrix: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(c)).limit_denominator(1000) for c in row] for row in matrix]


@pytest.mark.parametrize(("m", "r"), SIZES)
def test_one_dimension_is_a_convolution(m: int, r: int) -> None:
    """A^T [(G g) * (B^T d)] = the m outputs of a filter of r taps, with rational numbers."""
    transform, rng = Transform.of(m, r), np.random.default_rng(0)
    assert (transform.m, transform.taps, transform.alpha) == (m, r, m + r - 1)
    d = [Fraction(int(v)) for v in rng.integers(-9, 9, transform.alpha)]
    g = [Fraction(int(v)) for v in rng.integers(-9, 9, r)]
    bt, gm, at = exact(transform.bt), exact(transform.g), exact(transform.at)
    u = [sum(c * v for c, v in zip(row, g, strict=True)) for row in gm]
    v = [sum(c * x for c, x in zip(row, d, strict=True)) for row in bt]
    y = [sum(c * a * b for c, a, b in zip(row, u, v, strict=True)) for row in at]
    assert y == [sum(g[k] * d[i + k] for k in range(r)) for i in range(m)]


@pytest.mark.parametrize(("m", "k", "stride"), [(2, 3, 1), (4, 3, 1), (4, 3, 2), (2, 7, 2), (2, 5, 1)])
@pytest.mark.parametrize(("o", "i", "inner", "out", "blocks"), [(16, 8, 8, 8, 2), (17, 12, 4, 16, 3)])
def test_weight_layout(m: int, k: int, stride: int, o: int, i: int, inner: int, out: int, blocks: int) -> None:
    """Phase (y, x) of the weight, every stride-th tap from (y, x), as channels y * stride + x, channel."""
    w = np.random.default_rng(1).standard_normal((o, i, k, k)).astype("float32")
    layout = WinogradWeight.make(m, stride, inner, out, blocks)
    packed, g, taps = layout.pack(w), Transform.of(m, -(-k // stride)).g, -(-k // stride)
    assert packed.shape == layout.physical_shape(w.shape) and packed.dtype == w.dtype
    for c, depth in np.ndindex(o, stride**2 * i):
        phase, channel = divmod(depth, i)
        part = np.zeros((taps, taps))
        own = w[c, channel, phase // stride :: stride, phase % stride :: stride]
        part[: own.shape[0], : own.shape[1]] = own
        got = packed[:, c // out, depth // inner, depth % inner, c % out]
        np.testing.assert_allclose(got, (g @ part @ g.T).reshape(-1), rtol=2.0**-23, atol=1e-9)
    outputs = packed.transpose(1, 4, 0, 2, 3).reshape(blocks * out, -1)
    assert not outputs[o:].any()
    with pytest.raises(TypeError, match="packed tensor"):
        layout.index((0, 0, 0, 0))
