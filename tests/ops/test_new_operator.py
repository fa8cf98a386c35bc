"""A new elementwise operator is one row: imported, fused, compiled and folded by it."""

from typing import Any

import numpy as np
import onnx
import pytest
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.ops import Kind, Operator, registered
from tvm_ext.ops.evaluators import on_floats

X = random(3, 40)


def cosh(x: Any) -> Any:
    """(e^x + e^-x) / 2, as a scalar expression."""
    from tvm_ext.ops.scalars.functions import exp

    return (exp(x) + exp(-x)) * tirx.const(0.5, "float32")


COSH = Operator("relax.cosh Cosh", Kind.ELEMENTWISE, numpy=on_floats(np.cosh), tir=cosh, vector_work=20)


def graph(operator: str, **attributes: Any) -> onnx.ModelProto:
    """z = relu(operator(x w)) + operator(c), of which the last is a constant."""
    nodes = [
        node("MatMul", "x w", "p"), node(operator, "p", "q", **attributes), node("Relu", "q", "r"),
        node(operator, "c", "d", **attributes), node("Add", "r d", "z"),
    ]  # fmt: skip
    weights = {"w": random(40, 40, scale=0.1, seed=1), "c": random(40, seed=2)}
    return model(nodes, [value("x", X.shape)], [value("z", X.shape)], weights)


def check(proto: onnx.ModelProto, function: Any) -> None:
    """It is one kernel, of a recipe, with the numbers of numpy."""
    compiled = tvm_ext.compile(proto, cache=False)
    (kernel,) = compiled.report["kernels"]
    assert kernel["recipe"] == "dense"
    w, c = (onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer)
    wanted = np.maximum(function(X @ w), 0) + function(c)
    np.testing.assert_allclose(compiled.run({"x": X})["z"], wanted, rtol=2e-6, atol=2e-6)


def test_an_operator_of_relax() -> None:
    assert len(tvm_ext.compile(graph("Cosh"), cache=False).report["kernels"]) > 1
    with registered(COSH):
        check(graph("Cosh"), np.cosh)


def test_an_operator_that_the_stock_importer_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(onnx_frontend._get_convert_map())
    del known["Cosh"]
    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: known)
    with registered(COSH):
        check(graph("Cosh"), np.cosh)


def test_an_operator_composed_of_others() -> None:
    def composed(x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
        scaled = relax.op.multiply(x, relax.const(alpha, "float32"))
        return relax.op.clip(relax.op.add(scaled, relax.const(beta, "float32")), 0.0, 1.0)

    with registered(Operator("HardSigmoid", Kind.ELEMENTWISE, composed=composed)):
        check(graph("HardSigmoid", alpha=0.3), lambda x: np.clip(0.3 * x + 0.5, 0, 1))


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_swish(alpha: float) -> None:
    proto = graph("Swish", alpha=alpha)
    proto.opset_import[0].version = 24
    check(proto, lambda x: x / (1 + np.exp(-alpha * x)))
