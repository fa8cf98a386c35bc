"""Flatten of empty and other tensors, against onnxruntime."""

import numpy as np
import pytest

from ..graphs import check_numbers, model, node, value


@pytest.mark.parametrize("shape", [(0, 16), (2, 0, 3), (2, 3, 5), (4,), ()])
def test_flatten_at_every_axis(shape):
    for axis in range(-len(shape), len(shape) + 1):
        at = axis + len(shape) if axis < 0 else axis
        wanted = [int(np.prod(shape[:at])), int(np.prod(shape[at:]))]
        proto = model([node("Flatten", ["x"], ["y"], axis=axis)], [value("x", shape)], [value("y", wanted)])
        check_numbers(proto, {"x": np.ones(shape, "float32")})
