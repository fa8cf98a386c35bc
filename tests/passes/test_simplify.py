"""All simplification passes in order, on ResNet blocks: what is left, the numbers, and that a second run is idle."""

from typing import Any

import numpy as np
import onnx
import pytest
from tvm.ir import IRModule
from tvm.relax import op as R
from tvm.relax.frontend.onnx import from_onnx

from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tests.passes.helpers import apply, build, const, execute, ops, random
from tvm_ext.core.passes import has_main
from tvm_ext.passes.conditions import no_dead_bindings, unique_names
from tvm_ext.passes.pipeline import SIMPLIFY


def _in_order(mod: IRModule) -> tuple[Any, ...]:
    """Arguments of `apply` that run the simplification of the pipeline on `mod`."""
    first, *rest = (step() for step in SIMPLIFY)
    return (first, mod, *rest)


def _residual_block() -> onnx.ModelProto:
    """Conv-BN-Relu, Conv-BN, residual add, Relu, global pool, Flatten, Gemm, as torchvision exports it."""
    tensors = {"w1": random(6, 6, 3, 3), "w2": random(6, 6, 3, 3, seed=1), "fc": random(4, 6), "fcb": random(4)}
    for n in "12":
        for i, name in enumerate(("gamma", "beta", "mean", "var")):
            tensors[name + n] = np.abs(random(6, seed=i + 10 * int(n))) + 0.1
    norms = [" ".join(f"{name}{n}" for name in ("gamma", "beta", "mean", "var")) for n in "12"]
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]), node("BatchNormalization", f"c1 {norms[0]}", "n1"),
        node("Relu", "n1", "r1"), node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1]),
        node("BatchNormalization", f"c2 {norms[1]}", "n2"), node("Add", "n2 x", "a"), node("Relu", "a", "r2"),
        node("GlobalAveragePool", "r2", "p"), node("Flatten", "p", "f"), node("Gemm", "f fc fcb", "y", transB=1),
    ]  # fmt: skip
    return model(nodes, [value("x", [1, 6, 7, 5])], [value("y", [1, 4])], tensors)


@pytest.fixture(scope="module")
def block() -> onnx.ModelProto:
    """The model, checked."""
    proto = _residual_block()
    onnx.checker.check_model(proto)
    return proto


def test_residual_block_becomes_what_grouping_wants(block: onnx.ModelProto) -> None:
    result = apply(*_in_order(from_onnx(block, keep_params_in_input=False)))
    want = ["conv2d", "add", "relu", "conv2d", "add", "add", "relu", "mean", "reshape", "matmul", "add"]
    assert ops(result.mod) == want
    assert [e.detail for e in result.skipped] == []
    for condition in (has_main, unique_names, no_dead_bindings):
        assert condition(result.mod) is None


def test_second_run_does_nothing(block: onnx.ModelProto) -> None:
    once = apply(*_in_order(from_onnx(block, keep_params_in_input=False))).mod
    again = apply(*_in_order(once))
    assert again.fired == () and again.mod.same_as(once)


def test_outputs_are_those_of_onnxruntime(block: onnx.ModelProto) -> None:
    x = random(1, 6, 7, 5)
    want = onnxruntime_outputs(block, {"x": x})["y"]
    (got,) = execute(apply(*_in_order(from_onnx(block, keep_params_in_input=False))).mod, x)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_batch_norm_before_a_convolution_goes_into_it() -> None:
    parameters = [const(np.abs(random(3, seed=i)) + 0.1) for i in range(4)]

    def body(emit: Any, x: Any) -> Any:
        norm = emit(R.nn.batch_norm(x, *parameters, axis=1, training=False))
        return emit(R.nn.conv2d(emit(norm[0]), const(random(4, 3, 1, 1))))

    assert ops(apply(*_in_order(build(body, (1, 3, 5, 7)))).mod) == ["conv2d", "add"]
