"""DynamicQuantizeLSTM: an LSTM with weights of 8 bits, whose inputs and states are quantized by their own range."""

from __future__ import annotations

from typing import Any

from ..base import Attributes, Converter, emit, static_shape
from ..recurrent import Weights, lstm, row
from .quantized import dynamic_matmul


def _quantized(inputs: Any, number: int) -> Weights:
    """The products of a direction: inputs 8 to 11 are scales and zero points of both weights."""
    products = []
    for weight, scale, zero in ((inputs[1], inputs[8], inputs[9]), (inputs[2], inputs[10], inputs[11])):
        own = [row(part, number) for part in (weight, scale, zero)]
        products.append(lambda x, own=own: emit(dynamic_matmul([x, *own, None], {}, 11)))
    return Weights(products[0], products[1], static_shape(inputs[2], "the recurrent weight")[1])


def dynamic_lstm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DynamicQuantizeLSTM: an LSTM whose inputs, all steps together, and states are quantized by their own range."""
    return lstm(_quantized)(inputs, attributes, opset)


#: Operator of the domain com.microsoft -> converter.
CONVERTERS: dict[str, Converter] = {"DynamicQuantizeLSTM": dynamic_lstm}
