"""A model with switches: off it is the model, on it reads operands in bfloat16 or float16."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_graphs import model, node, random, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.frontend.checks.checker import check_model
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.precision.switched import SWITCHES, Switched, switched_model


def switched(proto: onnx.ModelProto, dtype: str = "bfloat16") -> Switched:
    return switched_model(check_model(read_model(proto), {}), proto.ir_version, dtype)


def run(subject: Switched, lowered: Sequence[str], **inputs: np.ndarray) -> list[np.ndarray]:
    feeds = {**inputs, SWITCHES: np.array(subject.switches(lowered), np.float32)}
    return [*onnxruntime_outputs(subject.proto, feeds).values()]


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def two_layers() -> onnx.ModelProto:
    nodes = [node("MatMul", "x w", "a", "fc1"), node("Relu", "a", "b", "relu"), node("MatMul", "b v", "y", "fc2")]
    return model(nodes, [value("x", (3, 7))], [value("y", (3, 5))], {"w": random(7, 11), "v": random(11, 5)})


def test_each_product_has_its_operands() -> None:
    twin = switched(two_layers())
    assert twin.layers == {"fc1": ("x", "w"), "fc2": ("b", "v")}
    assert twin.values == ("x", "w", "b", "v")
    assert twin.switches(["fc2"]) == [0.0, 0.0, 1.0, 1.0] and twin.switches([]) == [0.0] * 4


def test_on_and_off() -> None:
    twin, x, w, v = switched(two_layers()), random(3, 7, seed=1), random(7, 11), random(11, 5)
    (plain,) = run(twin, [], x=x)
    np.testing.assert_allclose(plain, np.maximum(x @ w, 0) @ v, rtol=0, atol=1e-5 * np.abs(plain).max())
    (last,) = run(twin, ["fc2"], x=x)
    want = rounded(np.maximum(x @ w, 0)) @ rounded(v)
    assert np.abs(last - want).max() < 2e-3 * np.abs(want).max() < np.abs(last - plain).max() * 10
    (first,) = run(twin, ["fc1"], x=x)
    want = np.maximum(rounded(x) @ rounded(w), 0) @ v
    assert np.abs(first - want).max() < 1e-5 * np.abs(want).max()


def test_the_split_rounds_as_bfloat16_does_but_for_ties() -> None:
    """Products with a unit matrix show the rounded operand."""
    eye = model(
        [node("MatMul", "x w", "y", "fc")],
        [value("x", (64, 64))],
        [value("y", (64, 64))],
        {"w": np.eye(64, dtype=np.float32)},
    )
    x = random(64, 64) * np.exp2(np.random.default_rng(0).integers(-60, 60, (64, 64))).astype(np.float32)
    (y,) = run(switched(eye), ["fc"], x=x)
    np.testing.assert_array_equal(y, rounded(x).astype(np.float32))


def test_float16_rounds_as_numpy_does() -> None:
    """Also where it overflows, is subnormal or zero; off, such numbers are left alone."""
    weights = {"w": np.ones((1, 1, 1, 1), np.float32), "one": np.float32([1])}
    nodes = [node("Mul", "x one", "a", "scale"), node("Conv", "a w", "y", "fc")]
    eye = model(nodes, [value("x", (1, 1, 64, 64))], [value("y", (1, 1, 64, 64))], weights)
    x = random(1, 1, 64, 64) * np.exp2(np.random.default_rng(0).integers(-30, 20, (64, 64))).astype(np.float32)
    twin = switched(eye, "float16")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(twin, ["fc"], x=x)[0], x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(run(twin, [], x=x)[0], x)


def test_inputs_and_outputs_stay_as_they_are_for_others() -> None:
    nodes = [node("MatMul", "x w", "y", "fc"), node("Mul", "x x", "z", "square"), node("MatMul", "y v", "u", "fc2")]
    outputs = [value("y", (3, 7)), value("z", (3, 7)), value("u", (3, 7))]
    twin = switched(model(nodes, [value("x", (3, 7))], outputs, {"w": random(7, 7), "v": random(7, 7, seed=1)}))
    assert twin.layers == {"fc": ("x", "w"), "fc2": ("y", "v")}
    x = random(3, 7)
    y, z, u = run(twin, ["fc", "fc2"], x=x)
    np.testing.assert_array_equal(z, x * x)
    assert np.any(y != rounded(y)) and np.abs(u - rounded(y) @ rounded(random(7, 7, seed=1))).max() < 1e-5


def test_a_residual_before_a_normalization_stays_as_it_is() -> None:
    nodes = [
        node("MatMul", "x w", "a", "fc"), node("Tanh", "a", "b", "tanh"), node("MatMul", "b w", "c", "fc2"),
        node("Add", "c b", "d", "add"), node("LayerNormalization", "d s", "y", "norm"),
    ]  # fmt: skip
    constants = {"w": random(7, 7), "s": np.ones(7, np.float32)}
    twin = switched(model(nodes, [value("x", (3, 7))], [value("y", (3, 7))], constants))
    readers = {maker.name: list(maker.input) for maker in twin.proto.graph.node if maker.name in ("fc2", "add")}
    assert readers["add"] == ["c", "b"] and readers["fc2"][0].endswith("rounded/b")


def test_results_that_sensitive_operators_read_are_not_rounded() -> None:
    nodes = [node("MatMul", "x w", "a", "fc"), node("Add", "a b", "c", "add"), node("Softmax", "c", "y", "softmax")]
    twin = switched(model(nodes, [value("x", (3, 7))], [value("y", (3, 7))], {"w": random(7, 7), "b": random(7)}))
    assert twin.layers == {"fc": ("x", "w")}
    nodes[-1] = node("GlobalMaxPool", "c", "y", "pool")
    twin = switched(
        model(nodes, [value("x", (1, 3, 5, 7))], [value("y", (1, 3, 1, 1))], {"w": random(7, 7), "b": random(7)})
    )
    assert twin.layers == {"fc": ("x", "w", "c")}


@pytest.mark.parametrize("opset", [7, 11, 13, 17])
def test_versions_that_know_no_bfloat16(opset: int) -> None:
    proto = two_layers()
    proto.opset_import[0].version = opset
    twin = switched(proto)
    assert not np.array_equal(*(run(twin, on, x=random(3, 7))[0] for on in ([], ["fc1"])))


def test_other_types_are_no_products_of_it() -> None:
    nodes = [node("MatMul", "x w", "y", "fc")]
    proto = model(
        nodes,
        [value("x", (3, 7), TensorProto.DOUBLE)],
        [value("y", (3, 7), TensorProto.DOUBLE)],
        {"w": random(7, 7).astype(np.float64)},
    )
    assert switched(proto).layers == {}


def test_labels_are_those_of_reports() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    twin = switched(model(nodes, [value("x", (3, 7))], [value("y", (3, 7))], {"w": random(7, 7)}))
    assert list(twin.layers) == ["MatMul:a", "MatMul:y"]
