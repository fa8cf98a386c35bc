"""Arrays of every stored dtype, kept in files and lent to kernels."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tvm_ext.runtime.memory.arrays import aligned_empty
from tvm_ext.tuning.measure.dtypes import bits_of, is_float, lent, poison_of

FLOATS = ("float64", "float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int8", "uint8", "int32", "int64", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_outlive_a_file_and_are_lent(dtype: str, tmp_path: Path) -> None:
    array = aligned_empty((3, 4), dtype)
    np.copyto(array, np.arange(12).reshape(3, 4).astype(dtype))
    np.save(tmp_path / "array.npy", bits_of(array))
    again = np.load(tmp_path / "array.npy").view(dtype)
    assert again.dtype.name == dtype and np.array_equal(again, array)
    tensor = lent(array)
    array[...] = np.array(1, dtype)
    assert np.array_equal(tensor.numpy().view(dtype), array)


def test_poison_is_of_the_dtype() -> None:
    assert [name for name in DTYPES if is_float(name)] == list(FLOATS) and is_float(ml_dtypes.bfloat16)
    assert all(np.isnan(poison_of(name)) and poison_of(name).dtype.name == name for name in FLOATS)
    assert (poison_of("int8"), poison_of("uint8"), poison_of("bool")) == (126, 254, True)
