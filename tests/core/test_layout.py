"""Layouts: shapes, indices, packing and back."""

from typing import Any

import numpy as np
import pytest

from tvm_ext.core.layout import Layout, PackedWeight

LAYOUTS = [Layout.plain(4), Layout.blocked(4, 8), Layout((0, 2, 3, 1)), Layout((0, 2, 3, 1), (1, 4))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape", [(1, 16, 3, 5), (2, 13, 1, 1), (1, 1, 1, 1)])
def test_pack_and_unpack_are_inverse(layout: Layout, shape: Any) -> None:
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape) + 1
    packed = layout.pack(x)
    assert packed.shape == layout.physical_shape(shape)
    assert packed.flags.c_contiguous
    assert np.array_equal(layout.unpack(packed, shape), x)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_index_finds_each_element(layout: Layout) -> None:
    shape = (2, 13, 3, 5)
    x = np.arange(np.prod(shape)).reshape(shape)
    packed = layout.pack(x)
    for logical in np.ndindex(*shape):
        physical = layout.index(logical)
        assert packed[physical] == x[logical]
        assert layout.logical(physical) == logical


def test_lanes_without_a_channel_are_zero() -> None:
    packed = Layout.blocked(4, 8).pack(np.ones((1, 5, 2, 2), "float32"))
    assert packed[..., 5:].sum() == 0 and packed[..., :5].all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (3, 1, 0, 2), (0, 1, 2, 3)])
def test_a_transpose_can_be_another_reading_of_the_same_memory(layout: Layout, axes: Any) -> None:
    x = np.arange(2 * 13 * 3 * 5).reshape(2, 13, 3, 5)
    y = x.transpose(axes)
    assert np.array_equal(layout.permuted(axes).unpack(layout.pack(x), y.shape), y)


def test_names() -> None:
    assert [str(a) for a in LAYOUTS] == ["NCHW", "NCHW8c", "NHWC", "NHWC4c"]
    assert str(PackedWeight.make(4, 8, 32, 2)) == "OIHW8i32o"
    assert str(PackedWeight.make(2, 8, 64, 1, transposed=True)) == "IO8i64o"


def test_only_the_plain_layout_is_plain() -> None:
    assert [a.is_plain for a in LAYOUTS] == [True, False, False, False]


@pytest.mark.parametrize(
    ("o", "i", "inner", "out", "blocks"), [(32, 16, 8, 16, 2), (17, 13, 13, 8, 4), (1, 1, 1, 4, 1)]
)
def test_packed_convolution_weight(o: int, i: int, inner: int, out: int, blocks: int) -> None:
    w = np.random.default_rng(0).standard_normal((o, i, 3, 2)).astype("float32")
    layout = PackedWeight.make(4, inner, out, blocks)
    packed = layout.pack(w)
    assert packed.shape == layout.physical_shape(w.shape) == (blocks, i // inner, 3, 2, inner, out)
    for at in np.ndindex(o, i, 3, 2):
        c, k, y, x = at
        assert packed[c // out, k // inner, y, x, k % inner, c % out] == w[at]
    assert np.count_nonzero(packed) == np.count_nonzero(w)  # outputs beyond the last are zero


def test_packed_matmul_weight_takes_the_transpose() -> None:
    w = np.random.default_rng(0).standard_normal((6, 5)).astype("float32")
    layout = PackedWeight.make(2, 3, 4, 2, transposed=True)
    packed = layout.pack(w)
    assert packed.shape == layout.physical_shape(w.shape) == (2, 2, 1, 1, 3, 4)
    for k, c in np.ndindex(6, 5):
        assert packed[c // 4, k // 3, 0, 0, k % 3, c % 4] == w[k, c]


def test_a_packed_weight_has_no_logical_index() -> None:
    with pytest.raises(TypeError, match="packed tensor"):
        PackedWeight.make(4, 1, 1, 1).index((0, 0, 0, 0))
