"""Pooling with auto_pad against onnxruntime."""

import numpy as np
import pytest

from ..graphs import check_numbers, model, node, value


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [(2, 3), (3, 4)])
def test_same_padding_of_odd_sizes(op_type, mode, kernel):
    x = np.random.default_rng(1).standard_normal((2, 3, 10, 11)).astype("float32")
    for strides in ([1, 1], [2, 2], [3, 2]):
        shape = (2, 3, *(-(-d // s) for d, s in zip(x.shape[2:], strides, strict=True)))
        nodes = [node(op_type, ["x"], ["y"], kernel_shape=kernel, strides=strides, auto_pad=mode)]
        check_numbers(model(nodes, [value("x", x.shape)], [value("y", shape)]), {"x": x})
