"""Flatten of empty and other tensors, Trilu at any diagonal, padding of ConvTranspose, against onnxruntime."""

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


@pytest.mark.parametrize("upper", [0, 1])
def test_a_diagonal_may_be_any_number(upper):
    numbers = [0, 1, -2, 5, -9, 2**40, -(2**40), 2**63 - 1, -(2**63)]
    nodes = [node("Trilu", ["x", f"k{i}"], [f"y{i}"], upper=upper) for i in range(len(numbers))]
    weights = {f"k{i}": np.int64(k) for i, k in enumerate(numbers)}
    proto = model(nodes, [value("x", [2, 3, 5])], [value(f"y{i}", [2, 3, 5]) for i in range(len(numbers))], weights)
    check_numbers(proto, {"x": np.arange(1, 31, dtype="float32").reshape(2, 3, 5)})


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_an_output_that_is_as_large_as_the_strides_say_has_no_more_padding(auto_pad):
    """ONNX infers a larger one."""
    deconv = node("ConvTranspose", ["x", "w"], ["y"], auto_pad=auto_pad, output_padding=[2, 1], strides=[3, 2])
    weights = {"w": np.random.default_rng(0).standard_normal((2, 3, 2, 3)).astype("float32")}
    proto = model([deconv], [value("x", [1, 2, 4, 5])], [value("y", [1, 3, 12, 10])], weights)
    check_numbers(proto, {"x": np.random.default_rng(1).standard_normal((1, 2, 4, 5)).astype("float32")})
