"""Values bound to a name: truth values and what is made of them, read twice, in vectors."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tvm_ext
from tests.onnx_graphs import model, node, random, value

X, Y = random(3, 33), random(3, 33, seed=1)


@pytest.mark.parametrize(
    ("nodes", "kind", "function"),
    [
        ([node("Less", "x y", "a"), node("And", "a a", "z")], TensorProto.BOOL, lambda a: a),
        ([node("Less", "x y", "a"), node("Xor", "a a", "z")], TensorProto.BOOL, lambda a: a ^ a),
        ([node("Less", "x y", "a"), node("Not", "a", "n"), node("Where", "a x y", "v"), node("Where", "n v x", "z")],
         TensorProto.FLOAT, lambda a: np.where(~a, np.where(a, X, Y), X)),
        ([node("Less", "x y", "a"), node("Cast", "a", "k", to=TensorProto.INT64), node("Mul", "k k", "z")],
         TensorProto.INT64, lambda a: a.astype("int64")),
        ([node("Less", "x y", "a"), node("Cast", "a", "k", to=TensorProto.FLOAT), node("Mul", "k k", "z")],
         TensorProto.FLOAT, lambda a: a.astype("float32")),
    ],
)  # fmt: skip
def test_a_truth_value_that_is_read_twice(nodes: Any, kind: int, function: Any) -> None:
    proto = model(nodes, [value("x", X.shape), value("y", X.shape)], [value("z", X.shape, kind)])
    compiled = tvm_ext.compile(proto, cache=False)
    assert [kernel["recipe"] for kernel in compiled.report["kernels"]] == ["elementwise"]
    np.testing.assert_array_equal(compiled.run({"x": X, "y": Y})["z"], function(X < Y))


@pytest.mark.parametrize("p", [1, 2])
def test_a_norm_whose_zero_is_asked_for_twice(p: int) -> None:
    x = np.concatenate([random(2, 7, 16), np.zeros((1, 7, 16), "float32")])
    proto = model([node("LpNormalization", "x", "y", axis=1, p=p)], [value("x", x.shape)], [value("y", x.shape)])
    y = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    norm = np.linalg.norm(x.astype("float64"), p, 1, keepdims=True)
    np.testing.assert_allclose(y, x / np.where(norm == 0, 1, norm), rtol=1e-6)
