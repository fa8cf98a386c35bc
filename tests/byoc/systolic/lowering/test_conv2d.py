"""Convolutions against their definition in float64, with every epilogue; and what is refused."""

import re
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.region import Operation
from tvm_ext.byoc.systolic.code.layer import ConvGeometry
from tvm_ext.byoc.systolic.config import SystolicOptions
from tvm_ext.byoc.systolic.lowering.regions import timing_of
from tvm_ext.byoc.systolic.results.report import layer_rows

from ..cases import direct_conv2d, random_float
from ..regions import SMALL, composite, conv2d, op, permuted, refusal, region, run, value


def expected(x: np.ndarray, w: np.ndarray, **attrs: Any) -> np.ndarray:
    geometry = ConvGeometry(w.shape[1], x.shape[2:], w.shape[2:], **attrs)
    return direct_conv2d(x.astype(float), w, geometry)


def close(result: np.ndarray, wanted: np.ndarray) -> None:
    assert result.shape == wanted.shape
    assert np.abs(result - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())


CASES = [
    ((1, 3, 9, 7), (5, 3, 3, 3), {"padding": (1, 1, 1, 1)}, 1),
    ((2, 4, 11, 6), (3, 4, 1, 1), {"strides": (2, 3)}, 1),
    ((1, 2, 8, 9), (7, 2, 3, 2), {"padding": (0, 1, 2, 0), "dilation": (2, 1)}, 1),
    ((3, 6, 7, 7), (4, 3, 3, 3), {"padding": (1, 0, 1, 2), "strides": (1, 2)}, 2),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}, 1),
]


@pytest.mark.parametrize(("shape", "weight", "attrs", "groups"), CASES, ids=str)
def test_bias_residual_relu(shape: Any, weight: Any, attrs: dict[str, Any], groups: int) -> None:
    rng = np.random.default_rng(1)
    x, w, bias = random_float(rng, shape), random_float(rng, weight), random_float(rng, (1, weight[0], 1, 1))
    conv = conv2d(value("x", *shape), w, groups=groups, **attrs)
    residual = random_float(rng, conv.result.shape)
    first = op("add", conv, bias)
    second = op("add", value("r", *residual.shape), first)
    offloaded = region(composite(conv, first, second, op("nn.relu", second)))
    (y,) = run(offloaded, {"x": x, "r": residual})
    close(y, np.maximum(expected(x, w, **attrs) + bias + residual, 0))


@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("groups", [1, 3])
def test_constants_of_each_channel(shape: tuple[int, ...], groups: int) -> None:
    rng = np.random.default_rng(2)
    x, w, addend = random_float(rng, (2, 3, 5, 5)), random_float(rng, (6, 3 // groups, 2, 2)), random_float(rng, shape)
    conv = conv2d(value("x", 2, 3, 5, 5), w, groups=groups)
    offloaded = region(composite(conv, op("add", conv, addend), *()))
    close(run(offloaded, {"x": x}, rows=2, cols=2)[0], expected(x, w) + addend)


@pytest.mark.parametrize("shape", [(2, 6, 4, 4), (1, 6, 1, 1), (6, 4, 4), (2, 1, 1, 1), (4, 1), (2, 6, 1, 1)], ids=str)
def test_computed_tensors_that_broadcast(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x, w, addend = random_float(rng, (2, 3, 5, 5)), random_float(rng, (6, 3, 2, 2)), random_float(rng, shape)
    conv = conv2d(value("x", 2, 3, 5, 5), w)
    wide = op("add", conv, value("r", *shape))
    if shape == (4, 1):  # rows of an image: pixels are walked through with one stride
        assert "no load walks through it" in refusal(conv, wide)
        return
    close(run(region(composite(conv, wide)), {"x": x, "r": addend})[0], expected(x, w) + addend)


@pytest.mark.parametrize(
    ("lanes", "cols", "flow", "unit"),
    [(16, 4, "ws", "vector"), (1, 4, "ws", "ws"), (1, 1, "ws", "ws"), (1, 1, "is", "vector")],
)
def test_a_depthwise_convolution_runs_where_it_takes_fewer_cycles(lanes: int, cols: int, flow: str, unit: str) -> None:
    """A column of the array a group, in the dataflow asked for, or all channels by a vector unit of enough lanes."""
    rng = np.random.default_rng(4)
    x, w, bias = random_float(rng, (2, 8, 9, 9)), random_float(rng, (8, 1, 3, 3)), random_float(rng, (8, 1, 1))
    conv = conv2d(value("x", 2, 8, 9, 9), w, groups=8, padding=(1, 1, 1, 1), strides=(2, 1))
    offloaded = region(composite(conv, add := op("add", conv, bias), op("clip", add, np.array(0.0), np.array(0.5))))
    (y,) = run(offloaded, {"x": x}, vector_lanes=lanes, cols=cols, dataflow=flow)
    close(y, np.clip(expected(x, w, padding=(1, 1, 1, 1), strides=(2, 1)) + bias, 0, 0.5))
    options = SystolicOptions(**{**SMALL, "cols": cols}, vector_lanes=lanes, dataflow=flow)
    (row,) = layer_rows(timing_of(offloaded, options))
    assert row.facts["dataflow"] == unit
    assert (row.macs > 0) == (unit == "ws") and row.vector_cycles > 0


def test_groups_that_leave_the_array_idle() -> None:
    rng = np.random.default_rng(4)
    conv = conv2d(value("x", 1, 16, 9, 9), random_float(rng, (8, 2, 3, 3)), groups=8, padding=(1, 1, 1, 1))
    run(region(composite(conv)), {"x": random_float(rng, (1, 16, 9, 9))}, rows=16, cols=16)  # in ten launches
    reason = refusal(conv, rows=16, cols=16, launch_cycles=100)
    assert re.search(r"each of the 8 groups of conv2d_\d+ is a GEMM of 81x18x1, which would use \d\.\d% of the", reason)


X, W = value("x", 1, 3, 6, 6), np.ones((4, 3, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([conv2d(X, value("w", 4, 3, 3, 3))], r"the weight w: float32\[4, 3, 3, 3\] is computed; a constant is needed"),
        ([conv2d(X, W, padding=(3, 3, 3, 3))], r"padding \(3, 3, 3, 3\) goes beyond windows of \(3, 3\)"),
        ([conv2d(X, W, strides=(300, 1))], "go up to 255"),
        ([(c := conv2d(X, W)), op("add", c, np.ones((1, 4, 4, 4), np.float32))], "differs from row to row"),
        ([(t := permuted(value("n", 1, 6, 6, 3), 0, 3, 1, 2)), conv2d(t, W)], "is transposed; a dense NCHW"),
        ([Operation("relax.nn.conv2d", (X, W), value("y", 1, 4, 4, 4), {"data_layout": "NHWC"})], "layouts NHWC"),
    ],
)
def test_refusals(operations: list[Operation], reason: str) -> None:
    assert re.search(reason, refusal(*operations)), refusal(*operations)


def test_attributes_of_one_number() -> None:
    """As TVM may write them: padding=1, strides=(2,)."""
    rng = np.random.default_rng(5)
    x, w = random_float(rng, (1, 3, 6, 6)), random_float(rng, W.shape)
    attrs = {"data_layout": "NCHW", "kernel_layout": "OIHW", "padding": 1, "strides": (2,), "dilation": (1, 1)}
    conv = Operation("relax.nn.conv2d", (X, w), value("y", 1, 4, 3, 3), attrs)
    (y,) = run(region(composite(conv)), {"x": x})
    close(y, expected(x, w, padding=(1, 1, 1, 1), strides=(2, 2)))
