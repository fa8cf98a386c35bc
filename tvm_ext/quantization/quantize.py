"""quantize: a float32 model and typical inputs -> a standard QDQ model, by onnxruntime's quantization tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..core.errors import ModelError
from ..core.machine import Machine
from ..verification.reference import onnxruntime_session
from .accuracy import SAMPLES, compare_layers
from .calibration import read_samples
from .preparation import Prepared, prepare
from .qdq import quantized_model
from .ranges import calibrate
from .result import QuantizeResult
from .selection import select
from .settings import QuantizeSettings

Event = Callable[[Mapping[str, Any]], None]


def quantize_model(
    model: Any, calibration: Any = None, *, on_event: Event | None = None, **options: Any
) -> QuantizeResult:
    """Quantize a model; see :func:`tvm_ext.quantize`."""
    settings = QuantizeSettings(**options)

    def tell(step: str, done: int, of: int) -> None:
        if on_event is not None:
            on_event({"event": "progress", "step": step, "done": done, "of": of})

    prepared = prepare(model)
    reasons = select(prepared.model, settings)
    chosen = [name for name, reason in reasons.items() if not reason]
    if not chosen:
        raise _nothing(prepared, reasons)
    samples = read_samples(calibration, prepared.model)
    onnxruntime_session(prepared.model)  # says what is wrong with a model better than a calibrator does
    settings, notes = _decided(settings)
    types = {node.name: node.op_type for node in prepared.model.graph.node}
    ranges = calibrate(prepared.model, [types[name] for name in chosen], samples, settings, tell)
    made, warnings = quantized_model(prepared.model, chosen, ranges, settings)
    layers = compare_layers(prepared.original, made, reasons, samples, tell)
    return QuantizeResult(
        name=prepared.name, model=made, settings=settings, layers=layers,
        left=tuple((name, types[name], why) for name, why in reasons.items() if why), quantized=len(chosen),
        samples=len(samples), compared=min(SAMPLES, len(samples)),
        notes=(*prepared.notes, *notes, *(f"onnxruntime: {one}" for one in warnings)),
        size=(prepared.original.ByteSize(), made.ByteSize()),
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
