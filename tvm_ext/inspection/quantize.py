"""`tvm_ext.quantize`: a quantized model, with a report that a notebook shows as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..quantization.quantize import quantize_model
from ..quantization.result import QuantizeResult
from .quantization_page import shown


def quantize(
    model: Any,
    calibration: Any = None,
    *,
    method: str = "minmax",
    percentile: float = 99.999,
    per_channel: bool = True,
    activations: str = "uint8",
    exclude: Sequence[str] = (),
    operators: Sequence[str] = (),
    reduce_range: bool | None = None,
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
) -> QuantizeResult:
    """Make a standard QDQ model of 8-bit weights and activations out of a float32 model, by onnxruntime's tools.

    Batch norms are folded first. Convolutions and matmuls with constant weights are quantized, and what stands between
    convolutions (residual adds, activations, pools, moves of data); the rest stays in float32.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`, which is not changed.
        calibration: inputs that are typical of what the model will see, from which ranges of activations are taken: an
            iterable of arrays (of a model with one input) or of dicts input name -> array, the path of an .npz or .npy
            file, or of a folder of them. An array may be a stack of batches along its first axis.
        method: "minmax", "entropy" or "percentile": how a range is chosen.
        percentile: with "percentile": part of the elements, in percent, that a range holds.
        per_channel: a scale for each output channel of a weight.
        activations: "uint8" (which x86 multiplies with int8 weights) or "int8".
        exclude: names of nodes that stay in float32; the report has them.
        operators: operators to quantize, and no others, wherever they stand.
        reduce_range: weights of 7 bits; None: only where this machine has no VNNI.
        on_event: is told of progress, as plain values: "step", "done", "of".

    Returns:
        A result: `model` (an `onnx.ModelProto`, for :func:`tvm_ext.compile` and any other runtime), `save(path)`, and
        a report: `layers` (SQNR, error of range and cosine of each value against float32), `outputs`, `left` (what
        stays in float32 and why); `str()` and `markdown()` print it.

    Raises:
        OptionError: a bad option, no calibration, or there is no such node or operator.
        InputError: calibration does not fit the model.
        ModelError: the model cannot be read, is quantized already, or has nothing to quantize.
        UnsupportedError: onnxruntime cannot run it, or it has 2 GiB or more.
    """
    return shown(
        quantize_model(
            model, calibration, method=method, percentile=percentile, per_channel=per_channel, activations=activations,
            exclude=exclude, operators=operators, reduce_range=reduce_range, on_event=on_event,
        )
    )  # fmt: skip
