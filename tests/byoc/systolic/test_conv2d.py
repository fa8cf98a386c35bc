"""Convolution by window loads, against a direct convolution in float64 or int32."""

import dataclasses

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, Step, conv2d, filter_matrices, nchw
from tvm_ext.byoc.systolic.code.program import Tensor
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.core.errors import ProgramError

from .cases import SMALL_FLOAT, SMALL_INT8, direct_conv2d, random_float, random_int8

GEOMETRIES = [
    ConvGeometry(1, (1, 1), (1, 1)),
    ConvGeometry(3, (7, 5), (3, 3), padding=(1, 1, 1, 1)),
    ConvGeometry(5, (11, 13), (3, 2), strides=(2, 3), padding=(0, 1, 2, 0)),
    ConvGeometry(2, (9, 17), (3, 3), dilation=(2, 3), padding=(2, 3, 2, 3)),
    ConvGeometry(3, (15, 14), (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
    ConvGeometry(4, (6, 6), (1, 1), strides=(2, 2)),
    ConvGeometry(7, (1, 23), (1, 5), padding=(0, 4, 0, 4)),
    ConvGeometry(2, (5, 5), (5, 5)),
]


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_float32(geometry: ConvGeometry, images: int) -> None:
    rng = np.random.default_rng(images)
    x = random_float(rng, (images, geometry.channels, *geometry.size))
    w = random_float(rng, (7, geometry.channels, *geometry.kernel))
    layer = conv2d("conv", "x", filter_matrices(w), "y", geometry, images=images)
    shape = (images, 7, *geometry.out_size)
    tensors = [Tensor("x", "input", x.shape, "float32"), Tensor("y", "output", shape, "float32")]
    y = run(lower([layer], tensors, SMALL_FLOAT), {"x": x})["y"]
    np.testing.assert_allclose(y, direct_conv2d(x.astype(float), w, geometry), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_int8_with_padding_of_any_value(geometry: ConvGeometry, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = random_int8(rng, (2, geometry.channels, *geometry.size))
    w = random_int8(rng, (5, geometry.channels, *geometry.kernel))
    layer = conv2d("conv", "x", filter_matrices(w), "y", geometry, images=2, pad_value=-128)
    shape = (2, 5, *geometry.out_size)
    tensors = [Tensor("x", "input", x.shape, dtype), Tensor("y", "output", shape, "int32")]
    image = x if dtype == "int8" else (x.astype(np.int16) + 128).astype(np.uint8)
    y = run(lower([layer], tensors, SMALL_INT8), {"x": image})["y"]
    np.testing.assert_array_equal(y, direct_conv2d(x.astype(np.int32), w.astype(np.int32), geometry, -128))


@pytest.mark.parametrize("groups", [2, 6])
def test_groups_with_bias_residual_and_relu(groups: int) -> None:
    """6 is depthwise; rows of the epilogue differ by group."""
    rng = np.random.default_rng(groups)
    geometry = ConvGeometry(6 // groups, (7, 9), (3, 3), strides=(1, 2), padding=(1, 1, 1, 1))
    x, w = random_float(rng, (2, 6, 7, 9)), random_float(rng, (12, 6 // groups, 3, 3))
    bias, residual = random_float(rng, (12,)), random_float(rng, (2, 12, *geometry.out_size))
    steps = (
        Step("add", row=bias.reshape(groups, -1)),
        Step("add", tile=nchw("r", 12 // groups, geometry.out_size, 2 * groups)),
        Step("relu"),
    )
    filters = filter_matrices(w, groups)
    layer = conv2d("conv", "x", filters, "y", geometry, images=2, groups=groups, steps=steps)
    tensors = [
        Tensor("x", "input", x.shape, "float32"),
        Tensor("r", "input", residual.shape, "float32"),
        Tensor("y", "output", residual.shape, "float32"),
    ]
    y = run(lower([layer], tensors, SMALL_FLOAT), {"x": x, "r": residual})["y"]
    expected = np.maximum(direct_conv2d(x.astype(float), w, geometry) + bias[:, None, None] + residual, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


def test_two_equal_convolutions_with_different_weights_in_a_row() -> None:
    rng = np.random.default_rng(9)
    geometry = ConvGeometry(4, (6, 7), (3, 3), padding=(1, 1, 1, 1))
    x, w1, w2 = (random_float(rng, shape) for shape in ((1, 4, 6, 7), (4, 4, 3, 3), (4, 4, 3, 3)))
    layers = [
        conv2d("first", "x", filter_matrices(w1), "h", geometry),
        conv2d("second", "h", filter_matrices(w2), "y", geometry),
    ]
    roles = (("x", "input"), ("h", "scratch"), ("y", "output"))
    tensors = [Tensor(name, role, (1, 4, 6, 7), "float32") for name, role in roles]
    y = run(lower(layers, tensors, SMALL_FLOAT), {"x": x})["y"]
    expected = direct_conv2d(direct_conv2d(x.astype(float), w1, geometry), w2, geometry)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-3)


def test_geometries_that_no_instruction_holds() -> None:
    with pytest.raises(ProgramError, match="go up to 255"):
        ConvGeometry(3, (600, 600), (300, 3))
    with pytest.raises(ProgramError, match="smaller than the kernel"):
        ConvGeometry(3, (4, 4), (5, 5))


@pytest.mark.parametrize("field", ["kernel", "strides", "dilation", "size"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_sizes_that_are_none(field: str, value: float) -> None:
    with pytest.raises(ProgramError, match="are 1 or more"):
        dataclasses.replace(ConvGeometry(1, (5, 5), (3, 3)), **{field: (2, value)})
    with pytest.raises(ProgramError, match="padding 0 or more"):
        ConvGeometry(1, (5, 5), (3, 3), padding=(0, 0, -1, 0))
