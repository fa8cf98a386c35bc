"""Views of the arena: another shape of a buffer takes no instruction of the virtual machine, nor does a check."""

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value


@pytest.mark.parametrize("threads", [1, 2])
def test_a_reshape_between_kernels_is_a_view(threads: int) -> None:
    nodes = [
        node("MatMul", "x w", "a"), node("Reshape", "a wide", "b"), node("Softmax", "b", "c", axis=2),
        node("Reshape", "c flat", "d"), node("MatMul", "d w", "y"),
    ]  # fmt: skip
    weights = {"w": random(12, 12), "wide": np.int64([3, 2, 6]), "flat": np.int64([3, 12])}
    proto = model(nodes, [value("x", (3, 12))], [value("y", (3, 12))], weights)
    called: list[str] = []
    compiled = tvm_ext.compile(proto, threads=threads, cache=False)
    x = random(3, 12)
    outputs = compiled.run_observed({"x": x}, lambda name, before: called.append(name) if before else None)
    product = (x @ weights["w"]).reshape(3, 2, 6)
    exponentials = np.exp(product - product.max(2, keepdims=True))
    soft = (exponentials / exponentials.sum(2, keepdims=True)).reshape(3, 12)
    np.testing.assert_allclose(outputs["y"], soft @ weights["w"], 1e-5, 1e-5)
    assert len(called) == 3 and not [name for name in called if name.startswith("vm.")], called
