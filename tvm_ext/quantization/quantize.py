"""quantize: a float32 model and typical inputs -> a standard QDQ model, by onnxruntime's quantization tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import ModelError, OptionError, listener
from ..core.machine import Machine
from ..verification.reference import onnxruntime_session
from .accuracy import SAMPLES, compare_layers
from .calibration import read_samples
from .preparation import Prepared, prepare
from .result import QuantizeResult
from .selection import select
from .settings import QuantizeSettings
from .tools import calibrate, quantized_model
from .weights_only import weights_only

Event = Callable[[Mapping[str, Any]], None]


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
    weights: str | None = None,
    block: int = 32,
    on_event: Event | None = None,
) -> QuantizeResult:
    """Make a standard QDQ model of 8-bit weights and activations out of a float32 model, by onnxruntime's tools; or,
    with `weights`, one whose matmuls have weights of few bits (MatMulNBits) and activations of float32.

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
        weights: "int4" or "int8": only weights of matmuls are quantized, with a scale for each `block` of inputs; what
            reads them is bound by memory. It takes no calibration, and of `operators` MatMul and Gemm.
        block: 16, 32, 64, 128 or 256.
        on_event: is told of progress, as plain values: "step", "done", "of".

    Returns:
        A result: `model` (an `onnx.ModelProto`, for :func:`tvm_ext.compile` and any other runtime), `save(path)`, and
        a report: `layers` (SQNR, error of range and cosine of each value against float32), `outputs`, `left` (what
        stays in float32 and why); `str()` and `markdown()` print it.

    Raises:
        OptionError: a bad option, no calibration or one with `weights`, or there is no such node or operator.
        InputError: calibration does not fit the model.
        ModelError: the model cannot be read, is quantized already, has nothing to quantize, or weights that are NaN.
        UnsupportedError: onnxruntime cannot run it, or it has 2 GiB or more.
    """
    settings = QuantizeSettings(
        method=method, percentile=percentile, per_channel=per_channel, activations=activations, exclude=exclude,
        operators=operators, reduce_range=reduce_range, weights=weights, block=block,
    )  # fmt: skip
    tell = listener(on_event)
    if weights is not None and calibration is not None:
        raise OptionError(
            "calibration= counts for nothing with weights=, which leaves activations in float32",
            fix="leave out calibration=, or weights= for a model of 8-bit activations",
        )
    prepared = prepare(model)
    if weights is not None:
        return weights_only(prepared, settings)
    return _calibrated(prepared, settings, calibration, tell)


def _calibrated(prepared: Prepared, settings: QuantizeSettings, calibration: Any, on_event: Event) -> QuantizeResult:
    """The QDQ model, by ranges that calibration shows."""

    def tell(step: str, done: int, of: int) -> None:
        on_event({"event": "progress", "step": step, "done": done, "of": of})

    reasons = select(prepared.model, settings)
    if not (chosen := [name for name, reason in reasons.items() if not reason]):
        raise _nothing(prepared, reasons)
    samples = read_samples(calibration, prepared.model)
    onnxruntime_session(prepared.model)  # says what is wrong with a model better than a calibrator does
    settings, notes = _decided(settings)
    types = {node.name: node.op_type for node in prepared.model.graph.node}
    ranges = calibrate(prepared.model, [types[name] for name in chosen], samples, settings, tell)
    quantized, warnings = quantized_model(prepared.model, chosen, ranges, settings)
    layers = compare_layers(prepared.original, quantized, reasons, samples, tell)
    return QuantizeResult(
        name=prepared.name, model=quantized, settings=settings, layers=layers,
        left=tuple((name, types[name], why) for name, why in reasons.items() if why), quantized=len(chosen),
        samples=len(samples), compared=min(SAMPLES, len(samples)),
        notes=(*prepared.notes, *notes, *(f"onnxruntime: {warning}" for warning in warnings)),
        size=(prepared.original.ByteSize(), quantized.ByteSize()),
    )  # fmt: skip


def _decided(settings: QuantizeSettings) -> tuple[QuantizeSettings, list[str]]:
    """`reduce_range` by this machine, unless the user said; and why."""
    if settings.reduce_range is not None:
        return settings, []
    machine = Machine.detect()
    vnni = {"avx512vnni", "avxvnni"} & set(machine.features)
    arm = {"neon", "sve"} & set(machine.features)  # its kernels widen before they add
    if vnni or arm:
        return replace(settings, reduce_range=False), []
    note = (
        "weights have 7 bits: this machine has no VNNI, and kernels that add two products in 16 bits, as onnxruntime's "
        "then do, would saturate; reduce_range=False takes 8"
    )
    return replace(settings, reduce_range=True), [note]


def _nothing(prepared: Prepared, reasons: Mapping[str, str]) -> ModelError:
    why = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:5]) or "it makes no floats"
    return ModelError(f"{prepared.name}: no node can be quantized: {why}", fix="see exclude= and operators=")
