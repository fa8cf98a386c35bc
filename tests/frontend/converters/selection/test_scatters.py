"""ScatterElements against onnxruntime: indices that are shorter than the data in any dimension."""

import numpy as np
import pytest
from onnx import TensorProto

from ...graphs import check_numbers, model, node, value

RNG = np.random.default_rng(11)


@pytest.mark.parametrize(
    ("shape", "reach", "axis", "reduction"),
    [
        ((5, 2, 17), (5, 1, 7), 2, "none"),
        ((5, 2, 17), (3, 2, 17), 1, "add"),
        *(((4, 6, 5), (2, 3, 4), 0, reduction) for reduction in ("none", "add", "mul", "max", "min")),
        ((4, 6, 5), (4, 6, 5), 1, "none"),
        ((7,), (3,), 0, "mul"),
        ((3, 4), (1, 1), -1, "none"),
        ((5, 2, 17), (5, 1, 7), 2, "Scatter"),  # as it was called once
        ((4, 6, 5), (2, 3, 4), 0, "Scatter"),
    ],
)
def test_indices_shorter_than_the_data(shape, reach, axis, reduction):
    index = np.argsort(RNG.random((*shape,)), axis=axis)[tuple(slice(0, n) for n in reach)].astype(np.int64)
    x, updates = RNG.standard_normal(shape).astype("float32"), RNG.standard_normal(reach).astype("float32")
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)]
    if old := reduction == "Scatter":
        nodes = [node("Scatter", ["x", "i", "u"], ["y"], axis=axis)]
    inputs = [value("x", shape), value("i", reach, TensorProto.INT64), value("u", reach)]
    proto = model(nodes, inputs, [value("y", shape)], opset=9 if old else 18)
    check_numbers(proto, {"x": x, "i": index, "u": updates})


def test_nothing_to_scatter():
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=0)]
    inputs = [value("x", (3, 2)), value("i", (0, 2), TensorProto.INT64), value("u", (0, 2))]
    feeds = {"x": RNG.standard_normal((3, 2)).astype("float32"), "i": np.zeros((0, 2), np.int64),
             "u": np.zeros((0, 2), np.float32)}  # fmt: skip
    check_numbers(model(nodes, inputs, [value("y", (3, 2))]), feeds)
