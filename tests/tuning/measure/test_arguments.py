"""Arguments of kernels: random values, packing, cold copies."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.tuning.measure.arguments import ColdCopies, Packed, poison, random_inputs
from tvm_ext.tuning.measure.dtypes import is_float
from tvm_ext.tuning.measure.programs import Argument


def test_inputs_are_the_same_everywhere_and_indices_are_within_bounds() -> None:
    arguments = [
        Argument((7, 3), "float32"), Argument((50,), "int64"), Argument((9,), "bool"),
        Argument((7, 3), "float32", written=True),
    ]  # fmt: skip
    first, second = random_inputs(arguments), random_inputs(arguments)
    assert [x.dtype.name for x in first] == ["float32", "int64", "bool"]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert first[1].min() >= 0
    assert first[1].max() < 3


def test_bytes_are_all_there_and_scales_are_positive() -> None:
    arguments = [
        Argument((3, 5000), "int8"), Argument((5000,), "uint8"), Argument((400,), "float32", scale=0.01),
        Argument((400,), "bfloat16"), Argument((400,), "float16"), Argument((2, 2), "int32"),
    ]  # fmt: skip
    signed, unsigned, scale, *floats, index = random_inputs(arguments)
    assert np.unique(signed).tolist() == list(range(-128, 128)) and np.unique(unsigned).tolist() == list(range(256))
    assert scale.dtype == np.float32 and 0.005 <= scale.min() < scale.max() <= 0.015
    assert [x.dtype.name for x in floats] == ["bfloat16", "float16"]
    assert all((x < 0).any() and (x > 0).any() for x in floats)
    assert index.max() < 64


def test_poison() -> None:
    for dtype in ("float32", "float16", ml_dtypes.bfloat16):
        array = np.zeros(3, dtype)
        poison(array)
        assert np.isnan(array).all()
    array = np.zeros(3, "int8")
    poison(array)
    assert (array == 126).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16, "int8", "uint8"])
def test_lanes_without_a_value_are_poisoned(dtype: Any) -> None:
    layout = Layout.blocked(4, 8)
    array = np.random.default_rng(0).standard_normal((1, 11, 2, 3)).astype(dtype)
    packed = Packed().get("x", array, layout)
    assert packed.dtype == dtype
    lanes = packed[0, 1, :, :, 3:]
    assert (np.isnan(lanes) if is_float(dtype) else lanes == np.iinfo(dtype).max - 1).all()
    assert np.array_equal(layout.unpack(packed, array.shape), array)
    assert packed.ctypes.data % 64 == 0


def test_packed_arrays_are_kept_within_a_limit() -> None:
    array, layout = np.zeros((16, 8, 3, 3), "float32"), PackedWeight.make(4, 8, 16, 1)
    packed = Packed(limit=2 * array.nbytes)
    first = packed.get(0, array, layout)
    assert packed.get(0, array, layout) is first
    for key in range(1, 5):
        packed.get(key, array, layout)
    assert packed.get(0, array, layout) is not first
    assert packed._bytes <= 2 * array.nbytes


def test_each_call_gets_a_copy_of_its_own_while_memory_lasts() -> None:
    arrays = [np.arange(100, dtype="float32"), np.arange(7, dtype="int32")]
    copies = ColdCopies(1 << 20).of(arrays, calls=5)
    assert len(copies) == 5
    for copy in copies:
        assert all(np.array_equal(a, b) for a, b in zip(copy, arrays, strict=True))
    starts = [array.ctypes.data for copy in copies for array in copy]
    assert len(set(starts)) == 10
    assert all(start % 64 == 0 for start in starts)
    assert len(ColdCopies(1200).of(arrays, calls=5)) == 3  # as many as fill it: two would be read too soon again
    assert ColdCopies(0).of(arrays, calls=5) == [arrays]
    assert ColdCopies(100).of(arrays, calls=5) == [arrays]
    assert ColdCopies(100).of([], calls=5) == [[]]
