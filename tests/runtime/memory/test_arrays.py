"""Where arrays of this library start."""

import gc
import weakref

import numpy as np
import pytest

import tvm_ext.runtime.memory.arrays as arrays_module
from tvm_ext.runtime.memory.arrays import aligned_empty, lend, lent_tensor, to_tensor, together, zeros


@pytest.mark.parametrize(
    ("shape", "alignment"), [((3,), 64), ((1, 5, 7), 64), ((128, 128), 4096), ((1021, 17), 4096), ((0,), 64)]
)
def test_arrays_start_at_a_cache_line_and_large_ones_at_a_page(shape: tuple[int, ...], alignment: int) -> None:
    for dtype in ("float32", "float64"):
        array = aligned_empty(shape, dtype)
        assert array.ctypes.data % alignment == 0
        assert array.shape == shape and array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous and array.flags.writeable


def test_arrays_of_one_mapping_are_zeros_and_apart() -> None:
    kinds = [((3,), np.dtype("int8")), ((0, 4), np.dtype("float32")), ((300, 300), np.dtype("float64"))]
    arrays = zeros([*kinds, *kinds])
    assert [(a.shape, a.dtype) for a in arrays] == [*kinds, *kinds]
    assert all(a.ctypes.data % (4096 if a.nbytes > 65536 else 64) == 0 and not a.any() for a in arrays)
    for number, array in enumerate(arrays):
        array[...] = number + 1
    assert all((a == number + 1).all() for number, a in enumerate(arrays))
    assert zeros([]) == []


def test_arrays_together_are_copies_in_memory_of_their_own() -> None:
    rng = np.random.default_rng(3)
    odd = rng.standard_normal((7, 11)).astype("float32")[:, ::2]
    arrays = [odd, np.array(5, "int64"), np.empty((0, 3), "int8"), rng.standard_normal((200, 301)).astype("bfloat16")]
    copies = together(arrays)
    for array, copy in zip(arrays, copies, strict=True):
        assert copy.dtype == array.dtype and copy.shape == array.shape and copy.tobytes() == array.tobytes()
        assert copy.flags.c_contiguous and not np.shares_memory(array, copy)
    assert together([]) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_a_tensor_has_the_memory_of_an_aligned_array(dtype: str) -> None:
    array = aligned_empty((5, 17), np.dtype(dtype))
    array[...] = np.random.default_rng(1).integers(0, 2, array.shape)
    tensor = to_tensor(array)
    assert str(tensor.dtype) == dtype and tensor.data_ptr() == array.ctypes.data
    values = array.tobytes()
    del array
    gc.collect()
    assert tensor.numpy().tobytes() == values  # it keeps the memory


def test_a_tensor_over_an_array_goes_with_it() -> None:
    (array,) = zeros([((4, 8), np.dtype("float32"))])
    assert lent_tensor(array) is None
    lend(array)
    tensor = lent_tensor(array)
    assert tensor is not None and tensor.data_ptr() == array.ctypes.data and tuple(tensor.shape) == (4, 8)
    assert lent_tensor(array[:]) is None
    gone, key = weakref.ref(array), id(array)
    del array, tensor
    gc.collect()
    assert gone() is None and key not in arrays_module._lent
    owner = np.zeros(4, np.float32)
    lend(owner)  # it holds its own memory: a tensor would keep it alive
    assert lent_tensor(owner) is None
