"""A QDQ model from ranges, by onnxruntime's quantizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx

from .selection import FLOAT_RESULTS
from .settings import QuantizeSettings


def quantized_model(
    model: onnx.ModelProto, nodes: list[str], ranges: Any, settings: QuantizeSettings
) -> tuple[onnx.ModelProto, list[str]]:
    """A copy of a model with QuantizeLinear and DequantizeLinear around some nodes; weights are stored in 8 bits.

    Args:
        model: prepared.
        nodes: names of the nodes to quantize, one at least.
        ranges: what :func:`tvm_ext.quantization.ranges.calibrate` returned.
        settings: with `reduce_range` decided.

    Returns:
        The model, and onnxruntime's warnings about it.
    """
    from onnxruntime.quantization import QDQQuantizer, QuantType

    copy = type(model)()
    copy.CopyFrom(model)
    chosen = set(nodes)
    operators = sorted({node.op_type for node in copy.graph.node if node.name in chosen})
    activations = QuantType.QUInt8 if settings.activations == "uint8" else QuantType.QInt8
    options = {"OpTypesToExcludeOutputQuantization": list(FLOAT_RESULTS), "ForceQuantizeNoInputCheck": True}
    with _warnings() as found:
        quantizer = QDQQuantizer(
            copy, settings.per_channel, bool(settings.reduce_range), QuantType.QInt8, activations, ranges, nodes, [],
            operators, options,
        )  # fmt: skip
        quantizer.quantize_model()
        quantizer.model.topological_sort()  # conversions of inputs come last else
    return quantizer.model.model, list(dict.fromkeys(found))


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Warnings go to the root logger, which would make itself a handler that writes to stderr for good."""
    found: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    root, keeper = logging.getLogger(), Keeper(logging.WARNING)
    root.addHandler(keeper)
    try:
        yield found
    finally:
        root.removeHandler(keeper)
