"""Seeded inputs."""

import numpy as np
import pytest

from tvm_ext.core.errors import InputError
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.runtime.spec import TensorSpec


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_inputs_have_the_shape_and_dtype_and_repeat(dtype):
    specs = [TensorSpec("x", (5, 400), dtype)]
    first, again, other = seeded_inputs(specs, 1)["x"], seeded_inputs(specs, 1)["x"], seeded_inputs(specs, 2)["x"]
    assert first.dtype == dtype and first.shape == (5, 400)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_distributions():
    floats = seeded_inputs([TensorSpec("x", (200, 200), "float32")])["x"]
    assert abs(float(floats.mean())) < 0.02 and abs(float(floats.std()) - 1.0) < 0.02
    indices = seeded_inputs([TensorSpec("x", (1000,), "int64")])["x"]
    assert set(indices.tolist()) == {0, 1, 2, 3}
    pixels = seeded_inputs([TensorSpec("x", (100, 100), "uint8")])["x"]
    assert pixels.min() == 0 and pixels.max() == 255
    assert seeded_inputs([TensorSpec("x", (), "float32")])["x"].shape == ()


def test_a_dtype_without_random_values_is_refused():
    with pytest.raises(InputError, match="complex64"):
        seeded_inputs([TensorSpec("x", (1,), "complex64")])
