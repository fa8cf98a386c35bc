"""Quantized models, one layer each, offloaded, against onnxruntime: with its graph optimizations
off, and by default.

With power-of-two scales every intermediate value of onnxruntime is a float32, so that both must
agree in each bit, and half-way cases, which rounding decides, occur all the time. With any other
scales onnxruntime's own float32 sums round.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import tvm_ext
from onnx.helper import np_dtype_to_tensor_dtype
from tests.onnx_graphs import model, node, value
from tvm_ext.verification.reference import run_reference

OPTIONS = {"when": "always", "dtype": "int8"}
_DATA = node("DequantizeLinear", "x sx zx", "d")
_STORED = node("QuantizeLinear", "m sy zy", "y")


@dataclass(frozen=True, eq=False)
class Case:
    """A model of one layer, and inputs for it; `kind` is what it is, `scales` "per tensor" or "per
    channel", `exact` whether these are powers of two."""

    kind: str
    scales: str
    exact: bool
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]


def cases(seed: int = 0) -> Iterator[Case]:
    """All kinds, per tensor and per channel, with power-of-two scales and with any."""
    for exact in (True, False):
        for per_channel in (False, True):
            rng = np.random.default_rng([seed, exact, per_channel])
            yield from _Maker(rng, exact, per_channel).cases()


def measure(case: Case) -> dict[str, Any]:
    """Elements, and how many differ from onnxruntime's with optimizations off and on, and by how
    much at most."""
    options = {"offload": "systolic", "offload_options": OPTIONS, "cache": False}
    compiled = tvm_ext.compile(case.model, **options)
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
    outputs, _ = run_reference(case.model, case.inputs, optimized=optimized)
    return outputs["y"].astype(np.int64)


class _Maker:
    """Models with random weights, scales and zero points."""

    def __init__(self, rng: np.random.Generator, exact: bool, per_channel: bool) -> None:
        self._rng, self._exact, self._per_channel = rng, exact, per_channel
        self._axis = {"axis": 0} if per_channel else {}

    def cases(self) -> Iterator[Case]:
        for m, k, n in ((1, 64, 10), (37, 129, 61), (128, 256, 96)):
            yield self._matmul_integer(m, k, n)
            yield self._qlinear_matmul(m, k, n)
            yield self._qdq_matmul(m, k, n)
            yield self._qdq_dense(m, k, n)
        pads = [1, 1, 1, 1]
        for x, weight, attrs in (
            ((2, 3, 32, 32), (16, 3, 3, 3), {"pads": pads, "strides": [2, 2]}),
            ((2, 32, 15, 15), (24, 32, 3, 3), {"pads": pads}),
            ((2, 17, 13, 13), (40, 17, 1, 1), {}),
        ):
            yield self._qlinear_conv(x, weight, attrs)
            yield self._qdq_conv(x, weight, attrs)

    def _int8(self, *shape: int) -> np.ndarray:
        return self._rng.integers(-128, 128, shape).astype(np.int8)

    def _scale(self, middle: float, count: int = 0) -> np.ndarray:
        """One scale, or one a channel, within a factor of two around `middle`."""
        shape = count if self._per_channel and count else ()
        scale = middle * 2.0 ** self._rng.uniform(-1, 1, shape)
        return np.float32(2.0 ** np.round(np.log2(scale)) if self._exact else scale)

    def _quantized(self, depth: int, n: int) -> dict[str, np.ndarray]:
        """Scales and zero points of x, w and y, such that the result fills its range and saturates
        here and there."""
        zeros = np.zeros(n if self._per_channel else (), np.int8)
        x, w = self._scale(0.03), self._scale(0.01, n)
        y = self._scale(float(np.max(w)) * float(x) * 74 * 74 * depth**0.5 / 64)
        zero = {name: np.int8(self._rng.integers(-100, 100)) for name in ("zx", "zy")}
        return {"sx": x, "sw": w, "sy": y, **zero, "zw": zeros}

    def _weighted(self, shape: tuple[int, ...], depth: int, n: int) -> dict[str, np.ndarray]:
        """The same with a weight."""
        return {"w": self._int8(*shape), **self._quantized(depth, n)}

    def _bias(self, constants: Mapping[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
        """The same with a bias, whose scale is the product of the others."""
        bias = self._rng.integers(-4000, 4000, n).astype(np.int32)
        return {**constants, "c": bias, "sc": np.float32(constants["sx"] * constants["sw"])}

    def _case(
        self,
        kind: str,
        nodes: Sequence[onnx.NodeProto],
        arrays: Sequence[np.ndarray],
        shape: Sequence[int],
        constants: Mapping[str, np.ndarray],
        dtype: str = "int8",
    ) -> Case:
        """A case of inputs x, x2, whose output y is of the shape."""
        inputs = dict(zip(("x", "x2"), arrays, strict=False))
        named = {**inputs, "y": np.empty(shape, dtype)}
        values = [value(n, v.shape, np_dtype_to_tensor_dtype(v.dtype)) for n, v in named.items()]
        proto = model(nodes, values[:-1], values[-1:], constants)
        scales = "per channel" if self._per_channel else "per tensor"
        return Case(kind, scales, self._exact, proto, inputs)

    def _matmul_integer(self, m: int, k: int, n: int) -> Case:
        zero = self._rng.integers(-20, 20, n if self._per_channel else ()).astype(np.int8)
        constants = {"w": self._int8(k, n), "zw": zero}
        constants["zx"] = np.int8(self._rng.integers(-128, 128))
        nodes = [node("MatMulInteger", "x w zx zw", "y")]
        return self._case("MatMulInteger", nodes, [self._int8(m, k)], (m, n), constants, "int32")

    def _qlinear_matmul(self, m: int, k: int, n: int) -> Case:
        constants = self._weighted((k, n), k, n)
        nodes = [node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")]
        return self._case("QLinearMatMul", nodes, [self._int8(m, k)], (m, n), constants)

    def _qdq_matmul(self, m: int, k: int, n: int) -> Case:
        """Both operands are computed, so their zero points are 0 and their scales per tensor; the
        batch is 2."""
        constants = self._quantized(k, 0)
        constants["sw"] = np.float32(np.max(constants["sw"]))
        constants["zx"] = constants["zw"] = np.int8(0)
        other = node("DequantizeLinear", "x2 sw zw", "v")
        nodes = [_DATA, other, node("MatMul", "d v", "m"), _STORED]
        right = self._int8(2, k, n)
        arrays = [self._int8(2, m, k), right]
        return self._case("QDQ MatMul", nodes, arrays, (2, m, n), constants)

    def _qdq_dense(self, m: int, k: int, n: int) -> Case:
        nodes = [
            _DATA, node("DequantizeLinear", "w sw zw", "v", axis=1),
            node("DequantizeLinear", "c sc", "b", **self._axis),
            node("MatMul", "d v", "p"), node("Add", "p b", "a"), node("Relu", "a", "m"), _STORED,
        ]  # fmt: skip
        constants = self._bias(self._weighted((k, n), k, n), n)
        return self._case("QDQ dense, bias, relu", nodes, [self._int8(m, k)], (m, n), constants)

    def _conv(self, weight: tuple[int, ...]) -> dict[str, np.ndarray]:
        depth, n = int(np.prod(weight[1:])), weight[0]
        return self._bias(self._weighted(weight, depth, n), n)

    def _qlinear_conv(
        self, x: tuple[int, ...], weight: tuple[int, ...], attrs: Mapping[str, Any]
    ) -> Case:
        nodes = [node("QLinearConv", "x sx zx w sw zw sy zy c", "y", **attrs)]
        data, shape = self._int8(*x), _conv_shape(x, weight, attrs)
        constants = {name: v for name, v in self._conv(weight).items() if name != "sc"}
        return self._case("QLinearConv", nodes, [data], shape, constants)

    def _qdq_conv(
        self, x: tuple[int, ...], weight: tuple[int, ...], attrs: Mapping[str, Any]
    ) -> Case:
        nodes = [
            _DATA, node("DequantizeLinear", "w sw zw", "v", **self._axis),
            node("DequantizeLinear", "c sc", "b", **self._axis),
            node("Conv", "d v b", "a", **attrs), node("Relu", "a", "m"), _STORED,
        ]  # fmt: skip
        constants, shape = self._conv(weight), _conv_shape(x, weight, attrs)
        return self._case("QDQ Conv, bias, relu", nodes, [self._int8(*x)], shape, constants)


def _conv_shape(
    x: tuple[int, ...], weight: tuple[int, ...], attrs: Mapping[str, Any]
) -> tuple[int, ...]:
    """The shape of the result; pads and strides of both axes are equal."""
    pad, stride = attrs.get("pads", [0])[0], attrs.get("strides", [1])[0]
    size = (x[2] + 2 * pad - weight[2]) // stride + 1
    return (x[0], weight[0], size, size)
