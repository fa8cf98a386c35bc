"""NHWC models: transposes around convolutions are other readings of the same memory, not kernels."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value

TO_NCHW, TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def nhwc_model(channels: tuple[int, int, int]) -> onnx.ModelProto:
    """x (NHWC) -> convolution -> relu, in NHWC -> convolution -> y (NHWC), with the transposes an exporter writes."""
    ci, co1, co2 = channels
    weights = {"w1": random(co1, ci, 3, 3, scale=0.2), "w2": random(co2, co1, 1, 1, scale=0.2)}
    nodes = [
        node("Transpose", "x", "a", perm=TO_NCHW), node("Conv", "a w1", "b", pads=[1, 1, 1, 1]),
        node("Transpose", "b", "c", perm=TO_NHWC), node("Relu", "c", "d"), node("Transpose", "d", "e", perm=TO_NCHW),
        node("Conv", "e w2", "f"), node("Transpose", "f", "y", perm=TO_NHWC),
    ]  # fmt: skip
    return model(nodes, [value("x", [1, 9, 7, ci])], [value("y", [1, 9, 7, co2])], weights)


@pytest.mark.parametrize(
    ("channels", "transforms"), [((3, 16, 24), 1), ((32, 16, 40), 2), ((5, 13, 7), 2)], ids=["stem", "blocks", "odd"]
)
def test_an_nhwc_model_moves_data_at_its_borders_only(channels: Any, transforms: int) -> None:
    proto = nhwc_model(channels)
    compiled = tvm_ext.compile(proto, cache=False)
    recipes = [k["recipe"] for k in compiled.report["kernels"]]
    assert recipes.count("layout_transform") == transforms
    assert "generic" not in recipes and len(recipes) == 3 + transforms
    assert tvm_ext.verify(compiled, model=proto).ok


@pytest.mark.parametrize("perm", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 2, 3]])
def test_a_transpose_alone_is_one_copy(perm: list[int]) -> None:
    shape = (2, 3, 4, 5)
    nodes = [node("Relu", "x", "r"), node("Transpose", "r", "y", perm=perm)]
    proto = model(nodes, [value("x", shape)], [value("y", [shape[p] for p in perm])])
    compiled = tvm_ext.compile(proto, cache=False)
    assert compiled.report["launches"] == (1 if perm == [0, 1, 2, 3] else 2)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    assert np.array_equal(compiled.run(x)["y"], np.maximum(x, 0).transpose(perm))
