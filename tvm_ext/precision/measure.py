"""`tvm_ext.sensitivity`: what bf16 or fp16 costs in accuracy, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionError
from ..core.options import CompileOptions
from ..frontend.reading.reader import read_model
from .sensitivity import sensitivity_of

if TYPE_CHECKING:
    import numpy as np

    from .sensitivity import Sensitivity


def sensitivity(
    model: Any,
    inputs: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]] | None = None,
    *,
    precision: str = "bf16",
    max_error: float | None = None,
    seeds: Sequence[int] = (0, 1),
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    **options: Any,
) -> Sensitivity:
    """Measure what each convolution and matmul costs in accuracy when it alone is computed in bf16 or fp16.

    onnxruntime runs the model with operands rounded: the same result for the same model and inputs.
    `compile(precision="bf16", max_error=...)` does it by itself, on random inputs; here inputs can be typical ones, and
    `compile(precision="bf16", keep_float32=result.reasons)` uses what was found.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        inputs: arrays by input name, or several sets of them; None draws one for each seed.
        precision: "bf16" or "fp16".
        max_error: largest error of the outputs, of their range: how many layers must keep float32 for it?
        seeds: of the drawn inputs.
        on_event: is told of progress, as plain values: "done" and "of", the most runs there will be.
        **options: `shapes`, `freeze` and `keep_float32`, as for :func:`tvm_ext.compile`.

    Returns:
        A result: `alone` (node -> error), `kept`, `together`, `reasons`; `str()` prints a table.

    Raises:
        OptionError: a bad option, or `max_error` leaves no layer to round: the message has the figures.
        InputError: `inputs` do not fit the model.
        ModelError, UnsupportedError: the model cannot be read, or onnxruntime cannot run it.
    """
    samples = [] if inputs is None else [inputs] if isinstance(inputs, Mapping) else list(inputs)
    chosen = CompileOptions.of(precision=precision, max_error=max_error, **options)
    if chosen.precision == "float32":
        raise OptionError("precision='float32' rounds nothing that could be measured", fix="choose 'bf16' or 'fp16'")
    return sensitivity_of(read_model(model), chosen, samples, seeds=seeds, on_event=on_event)
