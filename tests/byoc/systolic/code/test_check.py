"""Every bound of a program, each broken once: the error names the instruction and what was expected."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import (
    Conv,
    Finish,
    Gemm,
    Load,
    LoadConstant,
    LoadWindows,
    Reduce,
    Store,
    Sync,
    Vector,
)
from tvm_ext.byoc.systolic.code.program import Layer, Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.core.errors import ProgramError

HARDWARE = Accelerator(rows=4, cols=4, scratchpad_bytes=1024, accumulator_bytes=256)
TENSORS = (
    Tensor("x", "input", (2, 5, 5), "int8"),
    Tensor("f", "input", (9,), "float32"),
    Tensor("y", "output", (8,), "int32"),
)
CONSTANTS = (np.ones(16, np.int8), np.ones(4, np.float32))
WINDOWS = LoadWindows(0, 0, 9, 18, 0, 0, 0, 2, 5, 5, 5, 5, 3, 3, 1, 1, 1, 1, 1, 1, 0)


def program(*code: Any) -> Program:
    return Program(HARDWARE, TENSORS, CONSTANTS, (*code, Finish()))


def test_what_is_within_bounds() -> None:
    program(
        Load("a", 0, 0, 5, 10, 0, 10, 1),
        Load("a", 0, 1023, 1, 1, 49, 9, 9),
        dataclasses.replace(WINDOWS, row_begin=16),
        LoadConstant("b", 0, 0, 4, 4, 0),
        Gemm("ws", 0, 0, 0, 0, 8, 8, 8),
        Conv(1, 0, 992, 0, 4, 2, 4, 4, 4, 4, 2, 2, pad_top=1, pad_left=1, pad_value=-128),
        Vector("add", 0, 8, 8, "row", 992, "int32"),
        Vector("clip", 0, 8, 8, scale=float("inf"), low=0.0),
        Reduce("max", 1, 0, 9999, 0, 8, 8, 16),
        Reduce("dot", 0, 0, 960, 0, 8, 4, 16),
        Store(2, 56, 1, 8, 0, 0, 1),
        Sync(),
    )


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Load("a", 3, 0, 1, 1, 0, 1, 1), "tensor 3 of 3"),
        (Load("a", 0, 0, 5, 10, 1, 10, 1), "reaches element 50 of tensor x, which has 50"),
        (Load("a", 0, 1000, 5, 5, 0, 5, 1), "ends at byte 1025 of a scratchpad of 1024"),
        (Load("a", 1, 2, 1, 1, 0, 1, 1), "address 2 is no multiple of 4"),
        (Load("a", 0, 0, 0, 5, 0, 1, 1), "an empty tile"),
        (dataclasses.replace(WINDOWS, tensor=9), "tensor 9 of 3"),
        (dataclasses.replace(WINDOWS, row_begin=17), "rows end behind the last output pixel, 25"),
        (dataclasses.replace(WINDOWS, col_begin=1), "columns end behind the last element of a window, 18"),
        (dataclasses.replace(WINDOWS, offset=1), "the image ends behind tensor x of 50 elements"),
        (dataclasses.replace(WINDOWS, out_height=7), "a window begins outside of the image"),
        (dataclasses.replace(WINDOWS, pad_left=3), "padding as wide as a window"),
        (dataclasses.replace(WINDOWS, stride_width=0), "are 1 or more"),
        (dataclasses.replace(WINDOWS, tensor=1, pad_value=1), "pad_value is for int8 and uint8"),
        (LoadConstant("b", 2, 0, 1, 1, 0), "constant 2 of 2"),
        (LoadConstant("b", 0, 0, 4, 4, 1), "ends at element 17 of 16"),
        (LoadConstant("b", 1, 3, 1, 1, 0), "no multiple of 4"),
        (Gemm("ws", 0, 0, 0, 0, 0, 1, 1), "m, k and n are 1 or more"),
        (Gemm("ws", 0, 1000, 0, 0, 5, 5, 5), "ends at byte 1025"),
        (Gemm("ws", 0, 0, 0, 1, 8, 8, 8), "ends at word 65 of an accumulator of 64"),
        (Conv(0, 0, 0, 0, 0, 1, 1, 1, 1, 1), "n is 1 or more"),
        (Conv(2, 0, 0, 0, 1, 1, 1, 1, 1, 1), "accumulate is 0 or 1"),
        (Conv(0, 0, 0, 0, 1, 0, 1, 1, 1, 1), "channels, sizes, kernel, strides and dilation are 1 or more"),
        (Conv(0, 0, 0, 0, 1, 1, 4, 4, 5, 4), "a window begins outside of the image"),
        (Conv(0, 0, 0, 0, 1, 1, 4, 4, 4, 4, 2, 2, pad_top=2), "padding as wide as a window"),
        (Conv(0, 0, 0, 0, 1, 1, 4, 20, 4, 4, 1, 13), "input_spad=12"),
        (Conv(0, 1000, 0, 0, 1, 2, 4, 4, 4, 4), "ends at byte 1032"),
        (Conv(0, 0, 1000, 0, 4, 2, 4, 4, 4, 4, 2, 2), "ends at byte 1032"),
        (Conv(0, 0, 0, 1, 4, 2, 4, 4, 4, 4), "ends at word 65"),
        (dataclasses.replace(WINDOWS, tensor=1, pad_value=-127), r"pad_value is for .* \(float32: 0 or -128\)"),
        (Reduce("sum", 0, 0, 0, 0, 1, 1, 0), "rows, cols and taps are 1 or more"),
        (Reduce("sum", 0, 0, 0, 0, 8, 8, 17), "ends at byte 1088"),
        (Reduce("dot", 0, 0, 961, 0, 8, 4, 16), "ends at byte 1025"),
        (Reduce("max", 0, 0, 0, 1, 8, 8, 1), "ends at word 65"),
        (Vector("clip", 0, 1, 1, scale=1.0, low=2.0), "clips to 2.0 at least and 1.0 at most"),
        (Vector("clip", 0, 1, 1, scale=float("nan")), "clips to 0.0 at least and nan at most"),
        (Vector("clip", 0, 1, 1, "row"), "clip takes source none"),
        (Vector("relu", 0, 8, 9), "ends at word 72"),
        (Vector("relu", 0, 1, 1, "row"), "relu takes source none"),
        (Vector("gelu", 0, 1, 1, dtype="int32"), "gelu takes source none and dtype float32"),
        (Vector("add", 0, 2, 2, "tile", 1012, "float32"), "ends at byte 1028"),
        (Vector("quantize", 0, 1, 1, scale=0.0), "no positive finite number|not a positive finite number"),
        (Vector("dequantize", 0, 1, 1, scale=float("inf")), "not a positive finite number"),
        (Vector("quantize", 0, 1, 1, zero_point=128), "zero_point 128 is no int8"),
        (Store(0, 0, 1, 1, 0, 1, 1), "tensor x is an input"),
        (Store(2, 0, 3, 3, 0, 3, 1), "reaches element 8 of tensor y, which has 8"),
        (Store(7, 0, 1, 1, 0, 1, 1), "tensor 7 of 3"),
        (Store(2, 64, 1, 1, 0, 1, 1), "ends at word 65"),
        (Finish(), "FINISH before the end"),
        (Load("a", 0, 0, 1, 1, 0, 1, 1, tokens=4), "has no such neighbour"),
    ],
    ids=str,
)
def test_what_is_not(instruction: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=rf"instruction 1 \({instruction.mnemonic}.*\): .*({message})"):
        program(Sync(), instruction)


def test_programs_end_with_finish() -> None:
    for code in ((), (Sync(),)):
        with pytest.raises(ProgramError, match="FINISH"):
            Program(HARDWARE, TENSORS, CONSTANTS, code)


def test_parts_of_a_program() -> None:
    end = (Finish(),)
    with pytest.raises(ProgramError, match="two tensors have one name"):
        Program(HARDWARE, (TENSORS[0], TENSORS[0]), (), end)
    with pytest.raises(ProgramError, match="constant 0 is not a contiguous array"):
        Program(HARDWARE, (), (np.ones(3),), end)
    with pytest.raises(ProgramError, match=r"layer fc: \[0, 2\) is not within"):
        Program(HARDWARE, (), (), end, (Layer("fc", 0, 2),))
    with pytest.raises(ProgramError, match="memory above"):
        Program(Accelerator(scratchpad_bytes=1 << 33), (), (), end)
    with pytest.raises(ProgramError, match="choose"):
        Tensor("x", "input", (1,), "float64")
    with pytest.raises(ProgramError, match="tensor x: shape"):
        Tensor("x", "input", (1 << 20, 1 << 20), "int8")
    with pytest.raises(ProgramError, match="text without blanks"):
        Tensor("a b", "input", (1,), "int8")
