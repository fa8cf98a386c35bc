"""What a layer must keep to before it becomes code: tensors that exist, shapes, and dtypes from operands to output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....core.errors import ProgramError
from ..config import Accelerator
from .layer import GemmLayer, Matrix, Step
from .program import Tensor


def check_layer(layer: GemmLayer, tensors: Mapping[str, Tensor], hardware: Accelerator) -> None:
    """Raises ProgramError, with the name of the layer, where something does not fit."""
    problem = _operands(layer, tensors, hardware) or _steps(layer, tensors, hardware)
    if problem:
        raise ProgramError(f"layer {layer.name}: {problem}")


def _operands(layer: GemmLayer, tensors: Mapping[str, Tensor], hardware: Accelerator) -> str:
    read = [name for operand, names in layer.operands.items() if operand != "out" for name in names]
    for name in (*read, layer.out.tensor):
        if name not in tensors:
            raise ProgramError(f"layer {layer.name}: no tensor {name!r}", fix=f"choose of {', '.join(tensors)}")
    if layer.out.tensor in read:
        return f"it reads tensor {layer.out.tensor}, which it writes; give the output a tensor of its own"
    if (layer.b is None) != (layer.reduce in ("max", "sum")) or (layer.reduce and isinstance(layer.b, Matrix)):
        return f"reduce={layer.reduce!r} with B {type(layer.b).__name__}: max and sum have none, dot has a constant"
    a, accepted = tensors[layer.a.tensor].dtype, {"int8": ("int8", "uint8")}.get(hardware.dtype, ("float32",))
    b = a if layer.b is None else layer.b.dtype if isinstance(layer.b, np.ndarray) else tensors[layer.b.tensor].dtype
    if a not in accepted or str(b) not in accepted or (isinstance(layer.b, np.ndarray) and b != hardware.tensor_dtype):
        return f"operands are {a} and {b}, and the accelerator multiplies {hardware.dtype}"
    if isinstance(layer.b, np.ndarray) and layer.b.shape[1:] != (layer.parts * layer.k, layer.n):
        return f"B has shape {layer.b.shape}; [batches, {layer.parts * layer.k}, {layer.n}] is needed"
    return "" if min(layer.m, layer.k, layer.n, layer.batch, layer.parts) > 0 else "an empty GEMM"


def _steps(layer: GemmLayer, tensors: Mapping[str, Tensor], hardware: Accelerator) -> str:
    """Follows what the accumulator holds, int32 or float32, through the epilogue to the output."""
    held = hardware.accumulator_dtype
    for number, step in enumerate(layer.steps):
        wanted = "float32"
        if (step.op in ("add", "relu") and step.dtype == "int32") or step.op == "dequantize":
            wanted = "int32"
        if held != wanted:
            return f"step {number} ({step.op}) takes {wanted}, and the accumulator holds {held}"
        problem = _step_operand(layer, step, tensors)
        if problem:
            return f"step {number} ({step.op}): {problem}"
        held = {"dequantize": "float32", "quantize": "int32"}.get(step.op, held)
    out = tensors[layer.out.tensor]
    fits = out.dtype == "float32" if held == "float32" else out.dtype != "float32"
    return "" if fits else f"the epilogue ends in {held}, and its output {out.name} is {out.dtype}"


def _step_operand(layer: GemmLayer, step: Step, tensors: Mapping[str, Tensor]) -> str:
    if step.row is not None:
        if str(step.row.dtype) != step.dtype or step.dtype not in ("float32", "int32"):
            return f"a row of {step.row.dtype} with dtype {step.dtype}: both float32 or both int32 are needed"
        if step.row.ndim not in (1, 2) or step.row.shape[-1] != layer.n:
            return f"a row of shape {step.row.shape}; [{layer.n}] or [batches, {layer.n}] is needed"
    if step.tile is not None:
        dtype = tensors[step.tile.tensor].dtype
        if dtype.removeprefix("u") != step.dtype:  # uint8 arrives as int8
            return f"tensor {step.tile.tensor} is {dtype}, and the step takes {step.dtype}"
    return ""
