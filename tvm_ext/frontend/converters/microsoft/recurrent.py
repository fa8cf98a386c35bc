"""DynamicQuantizeLSTM: an LSTM with weights of 8 bits, whose inputs and states are quantized by their own range."""

from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of, numpy_of
from ....ops.conversion import dequantized
from ..base import MICROSOFT, Attributes, constant, converts, emit, scalar, static_shape
from ..quantize import dequantize_linear
from ..recurrent import Weights, between, converted
from .quantized import dynamic_matmul


@converts("DynamicQuantizeLSTM", MICROSOFT)
def dynamic_lstm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DynamicQuantizeLSTM: an LSTM whose inputs, all steps together, and states are quantized by their own range."""
    directions = range(static_shape(inputs[1], "the weight")[0])

    def of_input(x: Any) -> Any:
        x = _up_to(inputs[4], x)
        parts = [[_of_direction(inputs[i], number) for i in (1, 8, 9)] for number in directions]
        return emit(relax.op.concat([emit(dynamic_matmul([x, *part, None], {}, 11)) for part in parts], axis=-1))

    matrices = [_decoded(*(_of_direction(inputs[i], number) for i in (2, 10, 11))) for number in directions]
    return converted("LSTM", inputs, attributes, Weights(of_input, emit(relax.op.stack(matrices, axis=0)), True))


def _up_to(lengths: Any, x: Any) -> Any:
    """x (steps, batch, inputs) with zeros behind the longest sequence, which have no part in its range."""
    if lengths is None:
        return x
    steps = constant(np.arange(static_shape(x, "the input")[0]).reshape(-1, 1, 1), dtype_of(lengths))
    return emit(relax.op.where(relax.op.less(steps, emit(relax.op.max(lengths))), x, scalar(0, x)))


def _of_direction(x: Any, number: int) -> Any:
    """x[number]; None of None."""
    if x is None:
        return None
    array = numpy_of(x)
    return emit(relax.op.squeeze(between(x, number, number + 1), [0])) if array is None else constant(array[number])


def _decoded(matrix: Any, scale: Any, zero: Any) -> Any:
    """The recurrent weight of a direction, (H, 4 * H), as numbers (4 * H, H)."""
    q, factor, point = (numpy_of(x) for x in (matrix, scale, zero))
    if q is None or factor is None or point is None:
        real = emit(dequantize_linear([matrix, scale, zero], {"axis": 1}, 0))
        return emit(relax.op.permute_dims(real))
    return constant(dequantized(q, factor, point, 1).T)
