"""Normalizations of constants and of what has a mean much larger than its deviation, against float64."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext

from ..graphs import model, node, value

#: ONNX's default, which is a float32.
EPSILON = float(np.float32(1e-5))
SHAPE = (2, 4, 5, 3)
IMAGES = {
    "constant": np.full(SHAPE, 1000.0),
    "dark": np.full(SHAPE, 0.1),
    "bright": 2000 + np.arange(120.0).reshape(SHAPE) % 7,
    "plain": np.random.default_rng(0).standard_normal(SHAPE),
}
SCALE, BIAS = np.linspace(0.5, 2, 4), np.linspace(-1, 1, 4)


def normal(x: np.ndarray, axes: Any, epsilon: float, beside: float = 0.0) -> np.ndarray:
    x = x.astype("longdouble")
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / (np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon) + beside)


def mean_and_variance(**axes: Any) -> Any:
    over = tuple(axes.get("axes", (0, 2, 3)))
    return node("MeanVarianceNormalization", ["x"], ["y"], **axes), 13, "", lambda x: normal(x, over, 0, 1e-9)


def channels(x: np.ndarray) -> np.ndarray:
    return x * SCALE.reshape(1, 4, 1, 1) + BIAS.reshape(1, 4, 1, 1)


#: Name -> (node, opset, weights, expected).
CASES: dict[str, Any] = {
    "mean and variance": mean_and_variance(),
    "over the image": mean_and_variance(axes=[2, 3]),
    "groups": (
        node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2), 21, "sb",
        lambda x: channels(normal(x.reshape(2, 2, 30), 2, EPSILON).reshape(SHAPE)),
    ),
    "instances": (
        node("InstanceNormalization", ["x", "s", "b"], ["y"]), 17, "sb", lambda x: channels(normal(x, (2, 3), EPSILON)),
    ),
    "layer": (
        node("LayerNormalization", ["x", "one", "zero"], ["y"], axis=1), 17, "oz",
        lambda x: normal(x, (1, 2, 3), EPSILON),
    ),
    "batch, training": (
        node("BatchNormalization", ["x", "s", "b", "b", "s"], ["y", "m", "v"], training_mode=1), 15, "sb",
        lambda x: channels(normal(x, (0, 2, 3), EPSILON)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in CASES),
     *((name, ("float64", "float16")[(i + more) % 2]) for i, name in enumerate(CASES) for more in range(1 + i // 4))],
)  # fmt: skip
def test_nothing_cancels(name: str, dtype: str) -> None:
    nodes, opset, weights, expected = CASES[name]
    inputs = {"s": SCALE, "b": BIAS} if weights == "sb" else {}
    inputs |= {"one": np.ones(SHAPE[1:]), "zero": np.zeros(SHAPE[1:])} if weights == "oz" else {}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [value("x", SHAPE, kind), value("y", SHAPE, kind)]
    proto = model([nodes], ends[:1], ends[1:], {k: v.astype(dtype) for k, v in inputs.items()}, opset=opset)
    compiled = tvm_ext.compile(proto, cache=False)
    for image in IMAGES.values():
        x = image.astype(dtype)
        got = compiled.run({"x": x})["y"].astype("float64")
        np.testing.assert_allclose(got, expected(x), rtol=0, atol=tolerance(name, x))


def tolerance(name: str, x: np.ndarray) -> float:
    """What may be lost of a normalized image."""
    # what the mean is rounded to, in deviations, of which the smallest is the root of 1e-5; and the result itself
    computed = float(np.finfo("float64" if x.dtype == "float64" else "float32").eps)
    deviation = max(float(x.astype("float64").std()), 1e-5**0.5)
    if name in ("mean and variance", "over the image"):  # which take the mean twice
        deviation = 1.0
    return 8 * computed * float(np.abs(x.astype("float64")).max()) / deviation * 2 + 4 * float(np.finfo(x.dtype).eps)


def test_root_mean_square_of_float64() -> None:
    x, scale = np.random.default_rng(1).standard_normal((3, 7)), np.linspace(1, 2, 7)
    ends = [value(name, (3, 7), 11) for name in "xy"]
    proto = model(
        [node("RMSNormalization", ["x", "s"], ["y"], epsilon=2.0**-17)], ends[:1], ends[1:], {"s": scale}, opset=23
    )
    got = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    np.testing.assert_allclose(got, x / np.sqrt((x * x).mean(1, keepdims=True) + 2.0**-17) * scale, rtol=1e-14)


def test_layer_norm_of_float64_with_its_statistics() -> None:
    x = np.random.default_rng(2).standard_normal((3, 7))
    outputs = [value("y", (3, 7), 11), value("m", (3, 1)), value("d", (3, 1))]
    nodes = [node("LayerNormalization", ["x", "s"], ["y", "m", "d"], epsilon=2.0**-17)]
    proto = model(nodes, [value("x", (3, 7), 11)], outputs, {"s": np.ones(7)})
    results = tvm_ext.compile(proto, cache=False).run({"x": x})
    inverse = 1 / np.sqrt(x.var(1, keepdims=True) + 2.0**-17)
    np.testing.assert_allclose(results["y"], (x - x.mean(1, keepdims=True)) * inverse, rtol=1e-12)
    np.testing.assert_allclose(results["d"], inverse, rtol=1e-7)
