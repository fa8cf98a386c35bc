"""Pooling, sums of quantized tensors and what only changes a scale, against their definitions; and what is refused."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests import onnx_graphs as graphs
from tvm_ext.byoc.region import Operand, Operation
from tvm_ext.byoc.systolic.config import SystolicOptions
from tvm_ext.byoc.systolic.lowering.regions import timing_of
from tvm_ext.byoc.systolic.results.report import layer_rows
from tvm_ext.byoc.systolic.results.roofline import roofline_points
from tvm_ext.byoc.systolic.results.scale_sim_report import scale_sim_csv
from tvm_ext.byoc.systolic.simulation import functional
from tvm_ext.verification.reference import onnxruntime_session

from ..cases import random_float
from ..regions import (
    SMALL,
    composite,
    conv2d,
    dequantize,
    op,
    permuted,
    quantize,
    refusal,
    region,
    reshaped,
    run,
    value,
)


def pool(
    kind: str, x: Operand | Operation, size: Sequence[int], strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0), dtype: str = "float32", **attrs: Any,
) -> Operation:  # fmt: skip
    data = x.result.shape if isinstance(x, Operation) else x.shape
    out = [(data[2 + i] + padding[i] + padding[2 + i] - size[i]) // strides[i] + 1 for i in (0, 1)]
    named = {"pool_size": tuple(size), "strides": tuple(strides), "padding": tuple(padding), "layout": "NCHW", **attrs}
    return op(f"nn.{kind}_pool2d", x, shape=(*data[:2], *out), dtype=dtype, **named)


def mean(x: Operand | Operation, axes: Sequence[int] = (2, 3), keep: bool = True) -> Operation:
    data = x.result.shape if isinstance(x, Operation) else x.shape
    gone = [axis % len(data) for axis in axes]
    shape = [1 if at in gone else size for at, size in enumerate(data) if keep or at not in gone]
    return op("mean", x, shape=shape, axis=tuple(axes), keepdims=keep)


def windows(x: np.ndarray, size: Sequence[int], strides: Sequence[int], padding: Sequence[int], around: float) -> Any:
    """[n, c, y, x, height, width] of what each window sees."""
    top, left, bottom, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=around)
    seen = np.lib.stride_tricks.sliding_window_view(padded, tuple(size), axis=(2, 3))
    return seen[:, :, :: strides[0], :: strides[1]]


SIZES = [((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 3), (1, 2), (0, 0, 0, 0)), ((2, 2), (2, 1), (1, 0, 0, 1))]


@pytest.mark.parametrize(("size", "strides", "padding"), SIZES, ids=str)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_float_pools(kind: str, size: Any, strides: Any, padding: Any) -> None:
    """Around an image a maximum sees minus infinity, a mean zeros."""
    x = random_float(np.random.default_rng(0), (2, 21, 11, 9)) - np.float32(5)
    offloaded = region(
        composite(p := pool(kind, value("x", *x.shape), size, strides, padding, count_include_pad=True), *())
    )
    (y,) = run(offloaded, {"x": x})
    seen = windows(x, size, strides, padding, -np.inf if kind == "max" else 0)
    if kind == "max":
        np.testing.assert_array_equal(y, seen.max(axis=(4, 5)))
    else:
        np.testing.assert_allclose(y, seen.astype(float).mean(axis=(4, 5)), rtol=1e-5)
    assert y.shape == p.result.shape


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("size", "strides", "padding"), SIZES, ids=str)
def test_quantized_pools(size: Any, strides: Any, padding: Any, dtype: str) -> None:
    """Any zero points, scales that are powers of two: equal to the formulas in each bit; stepper and timing too."""
    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (2, 5, 8, 9)).astype(dtype)
    zero, out_zero = int(info.min) + 100, int(info.max) - 120
    for kind in ("max", "avg"):
        real = dequantize(value("x", *x.shape, dtype=dtype), 0.25, zero)
        p = pool(kind, real, size, strides, padding, count_include_pad=True)
        offloaded = region(composite(real, p, quantize(p, 0.5, out_zero, dtype)))
        (y,) = run(offloaded, {"x": x}, dtype="int8")
        seen = windows((x.astype(float) - zero) * 0.25, size, strides, padding, -np.inf if kind == "max" else 0)
        pooled = seen.max(axis=(4, 5)) if kind == "max" else seen.mean(axis=(4, 5)).astype(np.float32)
        np.testing.assert_array_equal(y, np.clip(np.rint(pooled / 0.5) + out_zero, info.min, info.max))
        timing = timing_of(offloaded, SystolicOptions(**SMALL, dtype="int8"))
        stepped = functional.run(timing.program, {"x": x}, backend="stepper")
        assert next(iter(stepped.values())).tobytes() == y.tobytes() and timing.cycles > 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_maximum_of_bytes_as_they_are(dtype: str) -> None:
    rng = np.random.default_rng(2)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (1, 3, 7, 7)).astype(dtype)
    offloaded = region(composite(pool("max", value("x", *x.shape, dtype=dtype), (3, 3), (2, 2), (1, 1, 1, 1), dtype)))
    (y,) = run(offloaded, {"x": x}, dtype="int8")
    np.testing.assert_array_equal(y, windows(x, (3, 3), (2, 2), (1, 1, 1, 1), info.min).max(axis=(4, 5)))


@pytest.mark.parametrize("keep", [True, False])
def test_means_over_whole_images(keep: bool) -> None:
    rng = np.random.default_rng(3)
    x = random_float(rng, (3, 37, 7, 5))
    (y,) = run(region(composite(mean(value("x", *x.shape), (2, 3), keep))), {"x": x})
    np.testing.assert_allclose(y, x.astype(float).mean(axis=(2, 3), keepdims=keep), rtol=1e-5, atol=1e-6)
    q = rng.integers(0, 256, (1, 6, 4, 4), dtype=np.uint8)
    real = dequantize(value("x", *q.shape, dtype="uint8"), 0.5, 77)
    (z,) = run(region(composite(real, m := mean(real, (-2, 3)), quantize(m, 0.25, 3, "uint8"))), {"x": q}, dtype="int8")
    exact = ((q.astype(float) - 77) * 0.5).mean(axis=(2, 3), keepdims=True)
    np.testing.assert_array_equal(z, np.clip(np.rint(exact / 0.25) + 3, 0, 255))


@pytest.mark.parametrize("shape", [(2, 5, 6, 7), (4, 9, 11), (3, 70)], ids=str)
@pytest.mark.parametrize("flip", [False, True])
def test_residual_adds_of_quantized_tensors(shape: tuple[int, ...], flip: bool) -> None:
    """int8 and uint8, each with its own scale and zero point, relu, and what broadcasts; in each bit."""
    rng = np.random.default_rng(4)
    small = (1, *shape[1:2], *([1] * (len(shape) - 2))) if len(shape) == 4 else shape
    a, b = rng.integers(-128, 128, shape, dtype=np.int8), rng.integers(0, 256, small, dtype=np.uint8)
    left = dequantize(value("a", *shape, dtype="int8"), 0.5, -7)
    right = dequantize(value("b", *small, dtype="uint8"), 0.125, 200)
    add = op("add", *((right, left) if flip else (left, right)))
    relu = op("nn.relu", add)
    offloaded = region(composite(left, right, add, relu, quantize(relu, 0.25, 5, "uint8")))
    (y,) = run(offloaded, {"a": a, "b": b}, dtype="int8")
    exact = np.maximum((a.astype(float) + 7) * 0.5 + (b.astype(float) - 200) * 0.125, 0)
    np.testing.assert_array_equal(y, np.clip(np.rint(exact / 0.25) + 5, 0, 255))


def test_another_scale() -> None:
    """quantize(reshape(dequantize(x)))."""
    x = np.arange(256, dtype=np.uint8).reshape(1, 64, 2, 2)
    real = dequantize(value("x", *x.shape, dtype="uint8"), 0.5, 100)
    flat = reshaped(real, 1, 256)
    (y,) = run(region(composite(real, flat, quantize(flat, 1.0, -3))), {"x": x}, dtype="int8")
    np.testing.assert_array_equal(y, np.clip(np.rint((x.reshape(1, -1).astype(float) - 100) / 2) - 3, -128, 127))


def test_layers_of_the_vector_unit_in_reports() -> None:
    """No multiply-adds of the array, no line for SCALE-Sim; terms over lanes, each operand read once."""
    x = value("x", 1, 8, 6, 6)
    conv, p = conv2d(x, np.ones((4, 8, 1, 1), np.float32)), pool("max", x, (3, 3))
    timing = timing_of(region(composite(conv), composite(p)), SystolicOptions(**{**SMALL, "vector_lanes": 4}))
    array, vector = layer_rows(timing)
    assert (vector.macs, vector.array_cycles, vector.utilization, vector.mapping_efficiency) == (0, 0, 0, 0)
    assert vector.vector_cycles == 8 * 4 * 4 * 9 // 4 and vector.bound == "memory"
    assert array.macs and array.vector_cycles == 0
    totals = timing.layer_totals(timing.program.layers[1])
    assert totals.vector_ops == 8 * 4 * 4 * 9 and totals.traffic["accumulator", "output"] == 2 * 4 * 8 * 4 * 4
    assert len(scale_sim_csv(timing).splitlines()) == 2
    assert [point.number for point in roofline_points(layer_rows(timing), timing.program.accelerator)] == [1]


def test_a_quantized_residual_network_is_one_region() -> None:
    """Convolutions, max pool, a residual add and a mean between quantized tensors; the CPU quantizes the input."""
    rng = np.random.default_rng(5)
    weights = {"s": np.float32(1 / 16), "z": np.uint8(120), "zw": np.int8(0)}
    nodes = [graphs.node("QuantizeLinear", "x s z", "xq", "first"), graphs.node("DequantizeLinear", "xq s z", "h")]
    for name, operator, inputs, attrs in (
        ("a", "Conv", "h wa_d", {"pads": [1, 1, 1, 1]}), ("m", "MaxPool", "a", {"kernel_shape": [2, 2]}),
        ("b", "Conv", "m wb_d", {"pads": [1, 1, 1, 1]}), ("r", "Add", "b m", {}), ("g", "GlobalAveragePool", "r", {}),
        ("f", "Flatten", "g", {}), ("d", "MatMul", "f wd_d", {}),
    ):  # fmt: skip
        if f"w{name}_d" in inputs:
            shape = {"a": (4, 3, 3, 3), "b": (4, 4, 3, 3), "d": (4, 5)}[name]
            weights[f"w{name}"] = rng.integers(-9, 10, shape).astype(np.int8)
            nodes.append(graphs.node("DequantizeLinear", f"w{name} s zw", f"w{name}_d"))
        nodes += [graphs.node(operator, inputs, f"{name}_r", f"node_{name}", **attrs),
                  graphs.node("QuantizeLinear", f"{name}_r s z", f"{name}_q"),
                  graphs.node("DequantizeLinear", f"{name}_q s z", name)]  # fmt: skip
    proto = graphs.model(nodes, [graphs.value("x", [1, 3, 8, 8])], [graphs.value("d", [1, 5])], weights)
    compiled = tvm_ext.compile(proto, offload="systolic", offload_options={"when": "always", "dtype": "int8"})
    report = compiled.offload_report()
    assert len(report.regions) == 1
    assert [op.node for op in report.ops if op.place == "cpu" and op.op != "DequantizeLinear"] == ["first"]
    x = random_float(rng, (1, 3, 8, 8)) * np.float32(4)
    (wanted,) = onnxruntime_session(proto, 1, optimized=False).run(None, {"x": x})
    np.testing.assert_array_equal(compiled.run({"x": x})["d"], wanted)
    assert len(np.unique(wanted)) > 3


X, Q = value("x", 1, 3, 6, 6), value("q", 1, 3, 6, 6, dtype="int8")


@pytest.mark.parametrize(
    ("operations", "dtype", "reason"),
    [
        ([pool("avg", X, (3, 3), padding=(1, 1, 1, 1))], "float32", "averages do not count; count_include_pad"),
        ([pool("max", X, (3, 3), layout="NHWC")], "float32", "layouts NHWC, NCHW; NCHW is taken"),
        ([op("nn.max_pool2d", X, shape=(1, 3, 3, 3), pool_size=3, strides=2)], "float32", "with ceil_mode a window"),
        ([pool("max", X, (2, 2), padding=(2, 0, 0, 0))], "float32", "goes beyond windows of"),
        ([mean(X, (1, 2))], "float32", r"mean over axes \[1, 2\]; height and width"),
        ([mean(value("v", 3, 6), (1,))], "float32", "a computed tensor of four axes is needed"),
        ([(t := permuted(X, 0, 1, 3, 2)), mean(t)], "float32", "is transposed; a dense NCHW tensor"),
        ([mean(Q)], "int8", "averages .* as it is; a dequantized tensor is taken"),
        ([mean(X)], "int8", "float32.*as it is|averages"),
        ([pool("max", X, (2, 2))], "int8", "with the option dtype='int8', int8 and uint8 are taken"),
        ([(d := dequantize(Q, 0.5)), mean(d)], "float32", "with the option dtype='float32', float32 are taken"),
        ([(d := dequantize(Q, [0.5, 1, 2], axis=1)), mean(d)], "int8", "a scale a channel; one scale is taken"),
        ([op("add", X, X)], "int8", "is behind no product; by itself the vector unit takes"),
        ([(d := dequantize(Q, 0.5)), op("add", d, X)], "int8", "x: float32.*is behind no product"),
        ([(d := dequantize(Q, 0.5)), op("add", d, d)], "int8", "as both operands"),
        ([quantize(Operation("relax.id", (), X), 0.5, 0)], "int8", "x: float32.*is behind no product"),
        ([c := conv2d(X, np.ones((2, 3, 1, 1), np.float32)), op("clip", c, np.array(2.0), np.array(1.0))], "float32",
         "clips to 2.0 at least and 1.0 at most"),
        ([c := conv2d(X, np.ones((2, 3, 1, 1), np.float32)), op("clip", c, np.array(2.0), np.array(np.nan))], "float32",
         "clips to 2.0 at least and nan at most"),
    ],
)  # fmt: skip
def test_refusals(operations: list[Operation], dtype: str, reason: str) -> None:
    assert re.search(reason, refusal(*operations, dtype=dtype)), refusal(*operations, dtype=dtype)
