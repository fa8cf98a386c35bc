"""Quantized models, one layer each, offloaded, against onnxruntime: with its graph optimizations off, and by default.

With power-of-two scales every intermediate value of onnxruntime is a float32, so that both must agree in each bit, and
half-way cases, which rounding decides, occur all the time. With any other scales onnxruntime's own float32 sums round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext

OPTIONS = {"when": "always", "dtype": "int8"}
_DTYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}


@dataclass(frozen=True, eq=False)
class Case:
    """A model of one layer, and inputs for it; `kind` is what it is, `scales` "per tensor" or "per channel"."""

    kind: str
    scales: str
    exact: bool
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]


def cases(seed: int = 0) -> Iterator[Case]:
    """All kinds, per tensor and per channel, with power-of-two scales and with any."""
    for exact in (True, False):
        for per_channel in (False, True):
            maker = _Maker(np.random.default_rng([seed, exact, per_channel]), exact, per_channel)
            yield from maker.cases()


def measure(case: Case) -> dict[str, Any]:
    """Elements, and how many differ from onnxruntime's with optimizations off and on, and by how much at most."""
    compiled = tvm_ext.compile(case.model, offload="systolic", offload_options=OPTIONS, cache=False)
    (ours,) = compiled.run(dict(case.inputs)).values()
    row: dict[str, Any] = {
        "kind": case.kind, "scales": case.scales, "exact": case.exact, "elements": int(ours.size),
        "offloaded": len(compiled.offload_report().regions) == 1,
    }  # fmt: skip
    for name, optimized in (("off", False), ("default", True)):
        steps = np.abs(ours.astype(np.int64) - onnxruntime_output(case, optimized))
        row[name] = {"mismatches": int(np.count_nonzero(steps)), "largest": int(steps.max())}
    return row


def onnxruntime_output(case: Case, optimized: bool) -> np.ndarray:
    """What onnxruntime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )  # fmt: skip
    (output,) = session.run(None, dict(case.inputs))
    return np.asarray(output).astype(np.int64)


class _Maker:
    """Models with random weights, scales and zero points."""

    def __init__(self, rng: np.random.Generator, exact: bool, per_channel: bool) -> None:
        self._rng, self._exact, self._per_channel = rng, exact, per_channel

    def cases(self) -> Iterator[Case]:
        for m, k, n in ((1, 64, 10), (37, 129, 61), (128, 256, 96)):
            yield self._matmul_integer(m, k, n)
            yield self._qlinear_matmul(m, k, n)
            yield self._qdq_matmul(m, k, n)
            yield self._qdq_dense(m, k, n)
        for channels, size, filters, kernel, attrs in (
            (3, 32, 16, 3, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
            (32, 15, 24, 3, {"pads": [1, 1, 1, 1]}),
            (17, 13, 40, 1, {}),
        ):
            yield self._qlinear_conv(channels, size, filters, kernel, attrs)
            yield self._qdq_conv(channels, size, filters, kernel, attrs)

    def _int8(self, *shape: int) -> np.ndarray:
        return self._rng.integers(-128, 128, shape).astype(np.int8)

    def _scale(self, middle: float, count: int = 0) -> np.ndarray:
        """One scale, or one a channel, within a factor of two around `middle`."""
        scale = middle * 2.0 ** self._rng.uniform(-1, 1, count if self._per_channel and count else ())
        return np.float32(2.0 ** np.round(np.log2(scale)) if self._exact else scale)

    def _quantized(self, tensors: Mapping[str, np.ndarray], depth: int, n: int, axis: int) -> dict[str, np.ndarray]:
        """Scales and zero points of x, w and y, such that the result fills its range and saturates here and there."""
        zeros = np.zeros(n if self._per_channel else (), np.int8)
        x, w = self._scale(0.03), self._scale(0.01, n)
        y = self._scale(float(np.max(w)) * float(x) * 74 * 74 * depth**0.5 / 64)
        zero = {name: np.int8(self._rng.integers(-100, 100)) for name in ("zx", "zy")}
        return {**tensors, "sx": x, "sw": w, "sy": y, **zero, "zw": zeros}

    def _case(self, kind: str, lines: list[onnx.NodeProto], x: np.ndarray, out: tuple[tuple[int, ...], str],
              constants: Mapping[str, np.ndarray], more: Mapping[str, np.ndarray] | None = None) -> Case:  # fmt: skip
        inputs = {"x": x, **(more or {})}
        given = [helper.make_tensor_value_info(n, _DTYPES[str(v.dtype)], v.shape) for n, v in inputs.items()]
        output = helper.make_tensor_value_info("y", _DTYPES[out[1]], out[0])
        weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
        graph = helper.make_graph(lines, kind, given, [output], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Case(kind, "per channel" if self._per_channel else "per tensor", self._exact, model, inputs)

    def _matmul_integer(self, m: int, k: int, n: int) -> Case:
        zero = self._rng.integers(-20, 20, n if self._per_channel else ()).astype(np.int8)
        constants = {"w": self._int8(k, n), "zx": np.int8(self._rng.integers(-128, 128)), "zw": zero}
        lines = [_node("MatMulInteger", "x w zx zw", "y")]
        return self._case("MatMulInteger", lines, self._int8(m, k), ((m, n), "int32"), constants)

    def _qlinear_matmul(self, m: int, k: int, n: int) -> Case:
        constants = self._quantized({"w": self._int8(k, n)}, k, n, 1)
        lines = [_node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")]
        return self._case("QLinearMatMul", lines, self._int8(m, k), ((m, n), "int8"), constants)

    def _qdq_matmul(self, m: int, k: int, n: int) -> Case:
        """Both operands are computed, so their zero points are 0 and their scales per tensor; the batch is 2."""
        constants = self._quantized({}, k, 0, 1)
        constants["sw"] = np.float32(np.max(constants["sw"]))
        constants["zx"] = constants["zw"] = np.int8(0)
        lines = [
            _node("DequantizeLinear", "x sx zx", "d"), _node("DequantizeLinear", "x2 sw zw", "v"),
            _node("MatMul", "d v", "m"), _node("QuantizeLinear", "m sy zy", "y"),
        ]  # fmt: skip
        more = {"x2": self._int8(2, k, n)}
        return self._case("QDQ MatMul", lines, self._int8(2, m, k), ((2, m, n), "int8"), constants, more)

    def _qdq_dense(self, m: int, k: int, n: int) -> Case:
        constants = self._quantized({"w": self._int8(k, n)}, k, n, 1)
        constants |= {"c": self._rng.integers(-4000, 4000, n).astype(np.int32)}
        constants |= {"sc": np.float32(constants["sx"] * constants["sw"])}
        axis = {"axis": 0} if self._per_channel else {}
        lines = [
            _node("DequantizeLinear", "x sx zx", "d"), _node("DequantizeLinear", "w sw zw", "v", axis=1),
            _node("DequantizeLinear", "c sc", "b", **axis), _node("MatMul", "d v", "p"), _node("Add", "p b", "a"),
            _node("Relu", "a", "m"), _node("QuantizeLinear", "m sy zy", "y"),
        ]  # fmt: skip
        return self._case("QDQ dense, bias, relu", lines, self._int8(m, k), ((m, n), "int8"), constants)

    def _conv(self, channels: int, filters: int, kernel: int) -> dict[str, np.ndarray]:
        depth = channels * kernel * kernel
        constants = self._quantized({"w": self._int8(filters, channels, kernel, kernel)}, depth, filters, 0)
        return constants | {"c": self._rng.integers(-4000, 4000, filters).astype(np.int32)}

    def _qlinear_conv(self, channels: int, size: int, filters: int, kernel: int, attrs: Mapping[str, Any]) -> Case:
        lines = [_node("QLinearConv", "x sx zx w sw zw sy zy c", "y", **attrs)]
        x = self._int8(2, channels, size, size)
        shape = _conv_shape(x.shape, filters, kernel, attrs)
        return self._case("QLinearConv", lines, x, (shape, "int8"), self._conv(channels, filters, kernel))

    def _qdq_conv(self, channels: int, size: int, filters: int, kernel: int, attrs: Mapping[str, Any]) -> Case:
        constants = self._conv(channels, filters, kernel)
        constants |= {"sc": np.float32(constants["sx"] * constants["sw"])}
        axis = {"axis": 0} if self._per_channel else {}
        lines = [
            _node("DequantizeLinear", "x sx zx", "d"), _node("DequantizeLinear", "w sw zw", "v", **axis),
            _node("DequantizeLinear", "c sc", "b", **axis), _node("Conv", "d v b", "a", **attrs),
            _node("Relu", "a", "m"), _node("QuantizeLinear", "m sy zy", "y"),
        ]  # fmt: skip
        x = self._int8(2, channels, size, size)
        shape = _conv_shape(x.shape, filters, kernel, attrs)
        return self._case("QDQ Conv, bias, relu", lines, x, (shape, "int8"), constants)


def _node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], f"{op.lower()}_{output}", **attributes)


def _conv_shape(shape: tuple[int, ...], filters: int, kernel: int, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    pad, stride = attrs.get("pads", [0])[0], attrs.get("strides", [1])[0]
    size = (shape[2] + 2 * pad - kernel) // stride + 1
    return (shape[0], filters, size, size)
