"""NHWC models: transposes around convolutions are other readings of the same memory, not kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tvm_ext

TO_NCHW, TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def nhwc_model(channels: tuple[int, int, int]) -> onnx.ModelProto:
    """x (NHWC) -> convolution -> relu, in NHWC -> convolution -> y (NHWC), with the transposes an exporter writes."""
    ci, co1, co2 = channels
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((co1, ci, 3, 3)).astype("float32") * 0.2,
        "w2": rng.standard_normal((co2, co1, 1, 1)).astype("float32") * 0.2,
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=TO_NCHW),
        helper.make_node("Conv", ["a", "w1"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["b"], ["c"], perm=TO_NHWC),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Transpose", ["d"], ["e"], perm=TO_NCHW),
        helper.make_node("Conv", ["e", "w2"], ["f"]),
        helper.make_node("Transpose", ["f"], ["y"], perm=TO_NHWC),
    ]
    value = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(
        nodes, "nhwc", [value("x", 1, [1, 9, 7, ci])], [value("y", 1, [1, 9, 7, co2])], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("channels", "transforms"), [((3, 16, 24), 1), ((32, 16, 40), 2), ((5, 13, 7), 2)], ids=["stem", "blocks", "odd"]
)
def test_an_nhwc_model_moves_data_at_its_borders_only(channels: Any, transforms: int) -> None:
    model = nhwc_model(channels)
    compiled = tvm_ext.compile(model, cache=False)
    recipes = [k["recipe"] for k in compiled.report["kernels"]]
    assert recipes.count("layout_transform") == transforms
    assert "generic" not in recipes and len(recipes) == 3 + transforms
    assert tvm_ext.verify(compiled, model=model).ok


@pytest.mark.parametrize("perm", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 2, 3]])
def test_a_transpose_alone_is_one_copy(perm: list[int]) -> None:
    shape = (2, 3, 4, 5)
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Transpose", ["r"], ["y"], perm=perm)]
    out = [shape[p] for p in perm]
    graph = helper.make_graph(nodes, "g", [value("x", 1, shape)], [value("y", 1, out)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    compiled = tvm_ext.compile(model, cache=False)
    assert compiled.report["launches"] == (1 if perm == [0, 1, 2, 3] else 2)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    assert np.array_equal(compiled.run(x)["y"], np.maximum(x, 0).transpose(perm))
