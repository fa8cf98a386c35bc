"""Normalizations in every float, against float64 numpy: scales that broadcast, old versions, odd sizes."""

import ml_dtypes  # noqa: F401  numpy learns bfloat16
import numpy as np
import pytest

from tvm_ext.core.errors import UnsupportedError

from ..graphs import node
from .typed import compiled

#: dtype -> relative to the largest value: a few roundings.
UNITS = {"float64": 1e-13, "float32": 3e-6, "float16": 3e-3, "bfloat16": 3e-2}
RNG = np.random.default_rng(17)
#: ONNX's default, which is a float32.
EPSILON = float(np.float32(1e-5))


def agree(got, wanted, dtype):
    bound = UNITS[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(got.astype("float64"), wanted, rtol=UNITS[dtype], atol=bound)


def random(*shape, dtype):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "constants"),
    [*(((2, 3, 5), "float32", known) for known in ("", "s", "smv", "b", "sbmv")),
     *(((2, 3, 5), dtype, known) for dtype in UNITS if dtype != "float32" for known in ("s", "sbmv")),
     *((shape, dtype, known) for shape in ((2, 3), (1, 4, 3, 2), (2, 3, 2, 2, 2))
       for dtype, known in (("float32", ""), ("float32", "sbmv"), ("bfloat16", "smv")))],
    ids=str,
)  # fmt: skip
def test_batch_norm_of_parameters_known_or_not(dtype, shape, constants):
    channels, wide = (1, shape[1], *[1] * (len(shape) - 2)), {}
    feeds = {"x": random(*shape, dtype=dtype), **{name: random(shape[1], dtype=dtype) for name in "sbm"}}
    feeds["v"] = RNG.uniform(0.5, 2, shape[1]).astype(dtype)
    wide = {name: a.astype("float64").reshape(shape if name == "x" else channels) for name, a in feeds.items()}
    wanted = (wide["x"] - wide["m"]) / np.sqrt(wide["v"] + EPSILON) * wide["s"] + wide["b"]
    weights = {name: feeds.pop(name) for name in constants}
    nodes = [node("BatchNormalization", list("xsbmv"), ["z"]), node("Relu", ["z"], ["y"])]
    agree(compiled(nodes, feeds, {"y": dtype}, 15, weights)["y"], np.maximum(wanted, 0), dtype)


@pytest.mark.parametrize("statistics", ["float16", "float32"])
def test_batch_norm_in_training_of_several_types(statistics):
    x, s = random(4, 3, 5, dtype="float16"), np.ones(3, "float16")
    mean, variance = np.zeros(3, statistics), np.ones(3, statistics)
    nodes = [node("BatchNormalization", ["x", "s", "s", "m", "v"], ["y", "p", "q"], training_mode=1, momentum=0.75)]
    got = compiled(nodes, {"x": x, "s": s, "m": mean, "v": variance},
                   {"y": "float16", "p": statistics, "q": statistics}, 15)  # fmt: skip
    wide, axes = x.astype("float64"), (0, 2)
    agree(got["p"], wide.mean(axes) * 0.25, "float16")
    agree(got["q"], 0.75 + wide.var(axes) * 0.25, "float16")
    normal = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + EPSILON)
    agree(got["y"], normal + 1, "float16")


@pytest.mark.parametrize("training", [0, 1])
@pytest.mark.parametrize(
    "kinds",
    [("float64", "float32", "float32"), ("float32", "float64", "float32"), ("float64", "float16", "float64"),
     ("float16", "bfloat16", "float32")],
)  # fmt: skip
def test_batch_norm_of_several_types_is_computed_in_the_widest(kinds, training):
    """ONNX 15 lets data, scale and statistics have a float type each."""
    kind, scale, statistics = kinds
    parts = {"s": scale, "b": scale, "m": statistics, "v": statistics}
    feeds = {"x": RNG.standard_normal((2, 3, 5)).astype(kind)}
    feeds |= {name: np.abs(RNG.standard_normal(3)).astype(np.dtype(dtype)) for name, dtype in parts.items()}
    outputs = {"y": kind, **({"rm": statistics, "rv": statistics} if training else {})}
    nodes = [node("BatchNormalization", list(feeds), list(outputs), training_mode=training)]
    results = compiled(nodes, feeds, outputs, 15)
    x, s, b, m, v = (a.astype("float64") for a in feeds.values())
    if training:
        m, v = x.mean((0, 2)), x.var((0, 2))
    s, b, m, v = (a.reshape(1, 3, 1) for a in (s, b, m, v))
    agree(results["y"], (x - m) / np.sqrt(v + EPSILON) * s + b, kind)


def test_batch_norm_of_opset_7():
    x, one = random(2, 3, 4, dtype="float32"), np.ones(3, "float32")
    nodes = [node("BatchNormalization", ["x", *"aaaa"], ["y"], spatial=1)]
    agree(
        compiled(nodes, {"x": x}, {"y": "float32"}, 7, {"a": one})["y"], (x - 1) / np.sqrt(1 + EPSILON) + 1, "float32"
    )
    with pytest.raises(UnsupportedError, match="spatial=0"):
        compiled([node("BatchNormalization", ["x", *"aaaa"], ["y"], spatial=0)], {"x": x}, {"y": "float32"}, 7,
                 {"a": np.ones((3, 4), "float32")})  # fmt: skip


SCALES = [
    (-1, (5,), (5,)), (1, (3, 1), (5,)), (0, (2, 3, 5), None), (-1, (1, 3, 5), (2, 3, 5)), (-1, (5,), None),
    (1, (3, 5), (3, 5)), (1, (5,), None), (-1, (1,), (1,)), (-1, (2, 1, 5), (2, 1, 5)), (-1, (3, 5), (3, 5)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "axis", "scale", "bias", "outputs"),
    [*(("float32", *of, 1 + 2 * (i % 2)) for i, of in enumerate(SCALES)),
     *((dtype, *of, outputs) for dtype in UNITS for of, outputs in zip(SCALES[:4], (1, 3, 3, 1), strict=True)
       if dtype != "float32")],
    ids=str,
)  # fmt: skip
def test_layer_norm_by_scales_that_broadcast(dtype, axis, scale, bias, outputs):
    feeds = {"x": random(2, 3, 5, dtype=dtype), "s": random(*scale, dtype=dtype)}
    if bias:
        feeds["b"] = random(*bias, dtype=dtype)
    wide, axes = {name: a.astype("float64") for name, a in feeds.items()}, tuple(range(axis % 3, 3))
    mean, variance = (f(wide["x"], axes, keepdims=True) for f in (np.mean, np.var))
    wanted = {"y": (wide["x"] - mean) / np.sqrt(variance + EPSILON) * wide["s"] + wide.get("b", 0),
              "m": mean, "i": 1 / np.sqrt(variance + EPSILON)}  # fmt: skip
    names = list("ymi")[:outputs]
    nodes = [node("LayerNormalization", list(feeds), names, axis=axis)]
    got = compiled(nodes, feeds, {name: dtype if name == "y" else "float32" for name in names}, 17)
    for name in names:
        agree(got[name], wanted[name], dtype if name == "y" or dtype != "float64" else "float32")


@pytest.mark.parametrize(("dtype", "opset", "shape", "groups"), [
    ("float32", 18, (2, 4, 5), 2), ("float32", 20, (1, 6, 3, 3), 3), ("float32", 18, (2, 4), 2),
    ("float32", 20, (1, 2, 2, 3, 2), 1), ("float64", 20, (2, 4, 5), 2), ("float16", 18, (1, 6, 3, 3), 3),
])  # fmt: skip
def test_group_norm_by_scales_of_groups(dtype, opset, shape, groups):
    x, scale, bias = random(*shape, dtype=dtype), random(groups, dtype=dtype), random(groups, dtype=dtype)
    apart = x.astype("float64").reshape(shape[0], groups, -1)
    normal = (apart - apart.mean(2, keepdims=True)) / np.sqrt(apart.var(2, keepdims=True) + EPSILON)
    wanted = normal * scale.astype("float64")[:, None] + bias.astype("float64")[:, None]
    nodes = [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=groups)]
    got = compiled(nodes, {"x": x}, {"y": dtype}, opset, {"s": scale, "b": bias})["y"]
    agree(got, wanted.reshape(shape), dtype)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [*(("float32", shape) for shape in ((2, 5, 3), (2, 5), (1, 4, 3, 2), (1, 3, 2, 2, 2))),
     ("float64", (1, 4, 3, 2)), ("float16", (1, 4, 3, 2))],
    ids=str,
)  # fmt: skip
def test_local_response_norm(dtype, shape):
    x = random(*shape, dtype=dtype)
    wide, channels, sizes = x.astype("float64"), shape[1], (1, 2, 3, 4)
    nodes = [node("LRN", ["x"], [f"y{size}"], size=size, alpha=0.5, beta=0.7, bias=1.5) for size in sizes]
    got = compiled(nodes, {"x": x}, {f"y{size}": dtype for size in sizes}, 13)
    for size in sizes:
        spans = [slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(channels)]
        sums = np.stack([(wide**2)[:, span].sum(1) for span in spans], 1)
        agree(got[f"y{size}"], wide / (1.5 + 0.5 / size * sums) ** np.float64(np.float32(0.7)), dtype)
