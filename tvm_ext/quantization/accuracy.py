"""How far the values of a quantized model are from those of the float32 model, layer by layer.

Both run in onnxruntime with its graph optimizations off, as the nodes say. The error of a layer is that of a plain run:
it has what the layers before it contributed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from ..runtime.table import Plain, plain_fields
from ..verification.reference import onnxruntime_session
from .calibration import Sample
from .tools import Tell

#: Samples that are compared, evenly picked of those given: more of them change the figures' last digits only.
SAMPLES = 8


@dataclass(frozen=True)
class LayerAccuracy(Plain):
    """A value of the float32 model, and the same one of the quantized model.

    Attributes:
        nodes: what computes it: a node, and an activation that went into its rounding.
        operator: of the first one.
        value: the ONNX name.
        dtype: "uint8" or "int8" if it is rounded, else "float32".
        reason: why the node stays in float32; "" if it is quantized.
        sqnr: signal to quantization noise, in dB: 10 log10(sum of squares / sum of squared errors).
        of_range: largest error, of the value's range (max - min).
        cosine: cosine similarity of the two as vectors.
        output: whether it is an output of the model.
    """

    nodes: tuple[str, ...]
    operator: str
    value: str
    dtype: str
    reason: str
    sqnr: float = math.inf
    of_range: float = 0.0
    cosine: float = 1.0
    output: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite SQNR (no error at all) is None."""
        fields = {name: value for name, value in plain_fields(self).items() if name != "sqnr"}
        return {**fields, "sqnr_db": self.sqnr if math.isfinite(self.sqnr) else None}


def compare_layers(
    original: onnx.ModelProto, quantized: onnx.ModelProto, reasons: Mapping[str, str], samples: Sequence[Sample],
    tell: Tell,
) -> tuple[LayerAccuracy, ...]:  # fmt: skip
    """A row for each float value that both models have, in the order they are computed.

    Args:
        original: the float32 model, before folding.
        quantized: of it.
        reasons: name of each node that makes floats -> why it stays in float32.
        samples: inputs, of which :data:`SAMPLES` are run.
        tell: is told ("comparing", samples that ran, samples).
    """
    pairs = _pairs(original, quantized, reasons)
    step = max(1, len(samples) / SAMPLES)
    picked = [samples[int(index * step)] for index in range(min(SAMPLES, len(samples)))]
    sides = [_session(original, [row.value for row, _ in pairs]), _session(quantized, [name for _, name in pairs])]
    sums = [_Sums() for _ in pairs]
    for number, sample in enumerate(picked):
        tell("comparing layers", number, len(picked))
        wanted, actual = (session.run(names, sample) for session, names in sides)
        for total, a, b in zip(sums, wanted, actual, strict=True):
            total.add(np.asarray(a), np.asarray(b))
    return tuple(
        replace(row, sqnr=sqnr, of_range=error, cosine=cosine)
        for (row, _), (sqnr, error, cosine) in zip(pairs, map(_Sums.metrics, sums), strict=True)
    )


def _pairs(
    original: onnx.ModelProto, quantized: onnx.ModelProto, reasons: Mapping[str, str]
) -> list[tuple[LayerAccuracy, str]]:
    """A row for each value, with nothing measured yet, and the value's name in the quantized model."""
    makers = {name: node for node in original.graph.node for name in node.output if name}
    outputs = {output.name for output in original.graph.output}
    kept = {node.name for node in quantized.graph.node}
    rounded = _rounded(quantized)
    pairs = []
    for node in quantized.graph.node:
        for name in node.output:
            counterpart, dtype = rounded.get(name, (name, "float32"))
            value = name if name in makers else counterpart
            if node.name not in reasons or value not in makers:
                continue
            last = makers[value].name  # an activation that went into the rounding, or a batch norm that was folded
            nodes = (node.name, last) if last != node.name and last not in kept else (node.name,)
            row = LayerAccuracy(nodes, node.op_type, value, dtype, reasons[node.name], output=value in outputs)
            pairs.append((row, counterpart))
    return pairs


def _rounded(model: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    """Value that QuantizeLinear reads -> what DequantizeLinear makes of it, and the type between."""
    types = {item.name: item.data_type for item in model.graph.initializer}
    decoded = {item.input[0]: item.output[0] for item in model.graph.node if item.op_type == "DequantizeLinear"}
    rounded: dict[str, tuple[str, str]] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] in decoded:
            kind = onnx.helper.tensor_dtype_to_np_dtype(types[node.input[2]])
            rounded.setdefault(node.input[0], (decoded[node.output[0]], np.dtype(kind).name))
    return rounded


def _session(model: onnx.ModelProto, names: list[str]) -> tuple[Any, list[str]]:
    copy = type(model)()
    copy.CopyFrom(model)
    there = {output.name for output in copy.graph.output}
    for name in dict.fromkeys(names):
        if name not in there:
            copy.graph.output.add().name = name
    return onnxruntime_session(copy, optimized=False), names


class _Sums:
    """Sums over samples, in float64, that the metrics are made of."""

    def __init__(self) -> None:
        self.signal = self.noise = self.other = self.product = self.largest = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, wanted: np.ndarray, actual: np.ndarray) -> None:
        if not wanted.size or wanted.shape != actual.shape:
            return
        a, b = wanted.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
        error = b - a
        self.signal += float(a @ a)
        self.noise += float(error @ error)
        self.other += float(b @ b)
        self.product += float(a @ b)
        self.largest = max(self.largest, float(np.abs(error).max()))
        self.low, self.high = min(self.low, float(a.min())), max(self.high, float(a.max()))

    def metrics(self) -> tuple[float, float, float]:
        """SQNR in dB, largest error of the range, cosine."""
        if not self.noise:
            return math.inf, 0.0, 1.0
        sqnr = 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf
        span = (self.high - self.low) or abs(self.high) or 1.0
        norms = math.sqrt(self.signal * self.other)
        return sqnr, self.largest / span, min(1.0, self.product / norms) if norms else 0.0
