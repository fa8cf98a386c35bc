"""What every instruction of a program must keep to: the bounds of memories and tensors, alignment, operand dtypes.

A program that passes never reads or writes outside of a memory, whatever its tokens; :class:`.program.Program` runs
this when it is made, so that no view has to check again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....core.errors import ProgramError
from ..config import Accelerator
from ..simulation.row_stationary import row_problem
from .isa import (
    Conv,
    Finish,
    Gemm,
    Load,
    LoadConstant,
    LoadWindows,
    Reduce,
    SparseGemm,
    Store,
    Vector,
    check_tokens,
    error_at,
    padded_size,
)
from .sparse import sparse_bytes

if TYPE_CHECKING:
    from .program import Program

#: Addresses have 32 bits, and a simulator has to have the memory.
MAX_MEMORY_BYTES = 1 << 30
MAX_IMAGE_ELEMENTS = 1 << 28
ITEMSIZE = {"int8": 1, "uint8": 1, "int32": 4, "float32": 4}
#: Of a vector operation: the sources it may have, and the dtypes of its operand (of c, for relu).
_VECTOR_FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "add": (("row", "tile"), ("float32", "int32", "int8")),
    "multiply": (("none", "row", "tile"), ("float32",)),
    "relu": (("none",), ("float32", "int32")),
    "gelu": (("none",), ("float32",)),
    "gelu_tanh": (("none",), ("float32",)),
    "dequantize": (("none", "row"), ("float32",)),
    "quantize": (("none", "row"), ("float32",)),
    "clip": (("none",), ("float32",)),
}


def loaded_itemsize(hardware: Accelerator, dtype: str, operand: str) -> int:
    """Bytes in the scratchpad of an element of a tensor that is loaded; operands are rounded to bfloat16 on the way."""
    return 2 if (hardware.dtype, dtype) == ("bfloat16", "float32") and operand != "epilogue" else ITEMSIZE[dtype]


def check_program(program: Program) -> None:
    """Raises ProgramError at the first instruction that breaks a bound; names its index and text."""
    hardware = program.accelerator
    if max(hardware.scratchpad_bytes, hardware.accumulator_bytes) > MAX_MEMORY_BYTES:
        raise ProgramError(f"the accelerator has a memory above {MAX_MEMORY_BYTES} bytes, which no view simulates")
    for each in program.tensors:
        if each.address is None:
            continue
        if problem := _scratchpad(program, each.address, each.size, ITEMSIZE[each.dtype]):
            raise ProgramError(f"tensor {each.name}: {problem}")
    instructions = program.instructions
    if not instructions or not isinstance(instructions[-1], Finish):
        raise ProgramError("the last instruction of a program is FINISH", fix="end the program with FINISH")
    for index, instruction in enumerate(instructions):
        check_tokens(index, instruction)
        if isinstance(instruction, Finish) and index != len(instructions) - 1:
            raise error_at(index, instruction, f"FINISH before the end, which is at {len(instructions) - 1}")
        tensor, check = getattr(instruction, "tensor", None), _CHECKS.get(type(instruction))
        if tensor is not None and tensor >= len(program.tensors):
            raise error_at(index, instruction, f"tensor {tensor} of {len(program.tensors)}")
        if check is not None and (problem := check(program, instruction)):
            raise error_at(index, instruction, problem)


def _check_load(program: Program, load: Load) -> str:
    tensor = program.tensors[load.tensor]
    size = loaded_itemsize(program.accelerator, tensor.dtype, load.operand)
    return _strided(load, tensor) or _scratchpad(program, load.dst, load.rows * load.cols, size)


def _check_windows(program: Program, load: LoadWindows) -> str:
    tensor = program.tensors[load.tensor]
    if problem := _image(load):
        return problem
    if load.pad_value not in {"float32": (0, -128), "int32": (0,)}.get(tensor.dtype, (load.pad_value,)):
        return f"pad_value is for int8 and uint8 tensors (float32: 0 or -128), and {tensor.name} is {tensor.dtype}"
    if load.row_begin + load.rows > load.out_height * load.out_width:
        return f"rows end behind the last output pixel, {load.out_height * load.out_width}"
    depth = load.channels * load.kernel_height * load.kernel_width
    if load.col_begin + load.cols > depth:
        return f"columns end behind the last element of a window, {depth}"
    if load.offset + load.channels * load.height * load.width > tensor.size:
        return f"the image ends behind tensor {tensor.name} of {tensor.size} elements"
    size = loaded_itemsize(program.accelerator, tensor.dtype, load.operand)
    return _scratchpad(program, load.dst, load.rows * load.cols, size)


def _check_constant(program: Program, load: LoadConstant) -> str:
    if load.constant >= len(program.constants):
        return f"constant {load.constant} of {len(program.constants)}"
    values, count = program.constants[load.constant], load.rows * load.cols
    if load.offset + count > values.size:
        return f"it ends at element {load.offset + count} of {values.size}"
    return _scratchpad(program, load.dst, count, values.itemsize)


def _check_gemm(program: Program, gemm: Gemm) -> str:
    if not min(gemm.m, gemm.k, gemm.n):
        return "m, k and n are 1 or more"
    if gemm.accumulate not in (0, 1):
        return "accumulate is 0 or 1"
    if gemm.is_sparse and program.accelerator.sparsity == "dense":
        return "the accelerator has dense weights"
    itemsize = program.accelerator.itemsize
    return (
        _scratchpad(program, gemm.a, gemm.m * gemm.k, itemsize)
        or _scratchpad(program, gemm.b, sparse_bytes(gemm.k, gemm.n) if gemm.is_sparse else gemm.k * gemm.n, itemsize)
        or _accumulator(program, gemm.c, gemm.m * gemm.n)
    )


def _check_conv(program: Program, conv: Conv) -> str:
    hardware, (m, k, n) = program.accelerator, conv.sizes
    if not n or conv.accumulate not in (0, 1):
        return "n is 1 or more, and accumulate is 0 or 1"
    if conv.pad_value and hardware.dtype != "int8":
        return f"pad_value is for operands of int8, and these are {hardware.dtype}"
    kernel, dilation = (conv.kernel_height, conv.kernel_width), (conv.dilation_height, conv.dilation_width)
    return (
        _image(conv)
        or row_problem(kernel, dilation, hardware)
        or _scratchpad(program, conv.a, conv.channels * conv.height * conv.width, hardware.itemsize)
        or _scratchpad(program, conv.b, k * n, hardware.itemsize)
        or _accumulator(program, conv.c, m * n)
    )


def _image(windows: LoadWindows | Conv) -> str:
    """What is wrong with the windows over an image."""
    w = windows
    spans = (
        (w.height, w.out_height, w.kernel_height, w.stride_height, w.dilation_height, w.pad_top),
        (w.width, w.out_width, w.kernel_width, w.stride_width, w.dilation_width, w.pad_left),
    )  # fmt: skip
    if any(min(span[:5]) < 1 for span in spans) or w.channels < 1:
        return "channels, sizes, kernel, strides and dilation are 1 or more"
    if any((out - 1) * stride - pad >= size for size, out, _, stride, _, pad in spans):
        return "a window begins outside of the image"
    if any(pad > (kernel - 1) * dilation for _, _, kernel, _, dilation, pad in spans):
        return "padding as wide as a window"
    if w.channels * math.prod(padded_size(w)) > MAX_IMAGE_ELEMENTS:
        return f"the image with its padding has more than {MAX_IMAGE_ELEMENTS} elements"
    return ""


def _check_reduce(program: Program, reduce: Reduce) -> str:
    if not min(reduce.rows, reduce.cols, reduce.taps):
        return "rows, cols and taps are 1 or more"
    itemsize = program.accelerator.itemsize
    return (
        _scratchpad(program, reduce.a, reduce.rows * reduce.cols * reduce.taps, itemsize)
        or (_scratchpad(program, reduce.b, reduce.taps * reduce.cols, itemsize) if reduce.op == "dot" else "")
        or _accumulator(program, reduce.c, reduce.rows * reduce.cols)
    )


def _check_vector(program: Program, vector: Vector) -> str:
    sources, dtypes = _VECTOR_FORMS[vector.op]
    if vector.source not in sources or vector.dtype not in dtypes:
        return f"{vector.op} takes source {' or '.join(sources)} and dtype {' or '.join(dtypes)}"
    if vector.op == "clip":
        if not vector.low <= vector.scale:  # a NaN neither
            return f"it clips to {vector.low} at least and {vector.scale} at most"
    elif not math.isfinite(vector.scale) or (vector.op == "quantize" and vector.scale <= 0):
        return f"scale {vector.scale} is not a positive finite number"
    if vector.op == "quantize" and not -128 <= vector.zero_point <= 127:
        return f"zero_point {vector.zero_point} is no int8"
    count = {"none": 0, "row": vector.cols, "tile": vector.rows * vector.cols}[vector.source]
    return _accumulator(program, vector.c, vector.rows * vector.cols) or (
        _scratchpad(program, vector.address, count, ITEMSIZE[vector.dtype]) if count else ""
    )


def _check_store(program: Program, store: Store) -> str:
    tensor = program.tensors[store.tensor]
    if tensor.role == "input":
        return f"tensor {tensor.name} is an input; only outputs and scratch tensors are written"
    return _strided(store, tensor) or _accumulator(program, store.c, store.rows * store.cols)


def _strided(access: Load | Store, tensor: Any) -> str:
    last = access.offset + (access.rows - 1) * access.row_stride + (access.cols - 1) * access.col_stride
    if access.rows and access.cols and last >= tensor.size:
        return f"it reaches element {last} of tensor {tensor.name}, which has {tensor.size}"
    return ""


def _scratchpad(program: Program, address: int, count: int, itemsize: int) -> str:
    if not count:
        return "an empty tile"
    if address % itemsize:
        return f"scratchpad address {address} is no multiple of {itemsize}, the size of an element"
    size, end = program.accelerator.scratchpad_bytes, address + count * itemsize
    return f"its tile at {address} ends at byte {end} of a scratchpad of {size}" if end > size else ""


def _accumulator(program: Program, address: int, count: int) -> str:
    if not count:
        return "an empty tile"
    words = program.accelerator.accumulator_bytes // 4
    end = address + count
    return f"its tile at {address} ends at word {end} of an accumulator of {words}" if end > words else ""


_CHECKS: dict[type[Any], Callable[[Program, Any], str]] = {
    Load: _check_load, LoadWindows: _check_windows, LoadConstant: _check_constant, Gemm: _check_gemm,
    SparseGemm: _check_gemm, Conv: _check_conv, Reduce: _check_reduce, Vector: _check_vector, Store: _check_store,
}  # fmt: skip
