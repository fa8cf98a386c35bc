"""Where arrays of this library start."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_ext.runtime.memory.arrays import aligned_empty


@pytest.mark.parametrize(
    ("shape", "alignment"), [((3,), 64), ((1, 5, 7), 64), ((128, 128), 4096), ((1021, 17), 4096), ((0,), 64)]
)
def test_arrays_start_at_a_cache_line_and_large_ones_at_a_page(shape: tuple[int, ...], alignment: int) -> None:
    for dtype in ("float32", "float64"):
        array = aligned_empty(shape, dtype)
        assert array.ctypes.data % alignment == 0
        assert array.shape == shape and array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous and array.flags.writeable
