"""Loops in TIR that measure what instructions on narrow numbers multiply and add: dot products, and tile registers.

dot:    chain[c] += x . w                  vpdpbusd or vdpbf16ps, enough chains at once to hide the latency
tiles:  acc[p, h] += left[p] x right[h]    a product of AMX, two by two accumulators, as kernels have them
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import compile_kernels
from tvm_ext.schedules.amx import COLUMNS, PRODUCTS, ROW_BYTES, ROWS, AmxTiles, Registers
from tvm_ext.schedules.dots import LANES, Dot, added, dot_of

#: Accumulators of a loop of dot products: six cycles of latency, two a cycle, and some to spare of 32 registers.
CHAINS = 16
_SIDE = 2
_DOTS = {"vpdpbusd": "uint8", "vdpbf16ps": "bfloat16"}
#: Mnemonic -> dtype of the left operand.
INSTRUCTIONS: Mapping[str, str] = {**_DOTS, **{one.instruction: one.left for one in PRODUCTS.values()}}
_ENTRY = "main"


def call_of_instruction(machine: Machine, name: str, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of :func:`call_of_dot` or :func:`call_of_tiles`, and how many operations it does.

    Args:
        name: the mnemonic, as :meth:`tvm_ext.core.recipe.Recipe.instruction` has it.

    Raises:
        ValueError: there is no such instruction.
    """
    if name not in INSTRUCTIONS:
        raise ValueError(f"no instruction {name!r}: there are {', '.join(INSTRUCTIONS)}")
    return (call_of_dot if name in _DOTS else call_of_tiles)(machine, INSTRUCTIONS[name], steps)


def call_of_dot(machine: Machine, dtype: str, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of a dot-product instruction on ones, checked, and how many operations it does.

    Args:
        machine: must have the instruction, and decides on threads.
        dtype: of the input: "uint8" (vpdpbusd) or "bfloat16" (vdpbf16ps).
        steps: instructions of a chain, shared among the threads.
    """
    dot, threads = dot_of(dtype, "int8" if dtype == "uint8" else dtype), machine.threads
    assert dot is not None
    each = steps // threads
    function = compile_kernels({_ENTRY: _dot_kernel(dot, threads, each)}, machine)[_ENTRY]
    arguments = _ones(dtype, (dot.group,)), _ones(dot.weight, (LANES * dot.group,))
    result = tvm.runtime.tensor(np.zeros((threads, CHAINS, LANES), dot.result))
    call = _checked(function, (*arguments, result), each * dot.group)
    return call, 2.0 * each * threads * CHAINS * LANES * dot.group


def _dot_kernel(dot: Dot, threads: int, each: int) -> tirx.PrimFunc:
    """Kernel of a word, the words of all lanes, and the sums (threads, CHAINS, LANES)."""
    vector = f"{dot.result}x{LANES}"
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        x, w, out = _declared(((dot.group,), dot.data), ((LANES * dot.group,), dot.weight),
                              ((threads, CHAINS, LANES), dot.result))  # fmt: skip
        with T.sblock("root"), T.parallel(threads) as t:
            chains = T.alloc_buffer((CHAINS, LANES), dot.result, scope="local")
            word = tirx.reinterpret("int32", x.vload([0], f"{dot.data}x{dot.group}"))
            words = w.vload([0], f"{dot.weight}x{LANES * dot.group}")
            with T.unroll(CHAINS) as c:
                T.buffer_store(chains, tirx.Broadcast(tirx.const(0, dot.result), LANES), [c, tirx.Ramp(0, 1, LANES)])
            with T.serial(each), T.unroll(CHAINS) as c:
                total = added(dot, chains.vload([c, 0], vector), word, words)
                T.buffer_store(chains, total, [c, tirx.Ramp(0, 1, LANES)])
            with T.unroll(CHAINS) as c:
                T.buffer_store(out, chains.vload([c, 0], vector), [t, c, tirx.Ramp(0, 1, LANES)])
    return builder.get()


def call_of_tiles(machine: Machine, dtype: str, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of a product of tile registers of ones, checked, and how many operations it does.

    Args:
        machine: must have the instruction, and decides on threads; this process must have the registers.
        dtype: of the left operand: "uint8", "int8" or "bfloat16"; the right one is "int8" or "bfloat16".
        steps: products, shared among the threads and four accumulators.
    """
    product, threads = PRODUCTS[dtype, "bfloat16" if dtype == "bfloat16" else "int8"], machine.threads
    each = steps // threads // _SIDE**2
    kernel = _tiles_kernel(AmxTiles(product, Registers(_SIDE, _SIDE, ROWS, COLUMNS)), threads, each)
    function = compile_kernels({_ENTRY: kernel}, machine)[_ENTRY]
    operands = (_ones(one, (_SIDE, ROWS, product.lanes)) for one in (product.left, product.right))
    result = tvm.runtime.tensor(np.zeros((threads, _SIDE, _SIDE, ROWS, COLUMNS), product.result))
    call = _checked(function, (*operands, result), each * product.lanes)
    return call, 2.0 * each * threads * result.numpy()[0].size * product.lanes


def _tiles_kernel(tiles: AmxTiles, threads: int, each: int) -> tirx.PrimFunc:
    """Kernel of the bytes of the operands (2, 16, 64) and the sums (threads, 2, 2, 16, 16)."""
    product, registers = tiles.product, tiles.registers
    operand, sums = (_SIDE, ROWS, product.lanes), (threads, _SIDE, _SIDE, ROWS, COLUMNS)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        a, b, out = _declared((operand, product.left), (operand, product.right), (sums, product.result))
        with T.sblock("root"), T.parallel(threads) as t:
            tiles.begin()
            for i in range(_SIDE):
                tiles.load(registers.left(i), functools.partial(_element, a, i), ROW_BYTES)
                tiles.load(registers.right(i), functools.partial(_element, b, i), ROW_BYTES)
            pairs = [(p, h, registers.accumulator(p, h)) for p in range(_SIDE) for h in range(_SIDE)]
            for *_, accumulator in pairs:
                tiles.zero(accumulator)
            with T.serial(each):
                for p, h, accumulator in pairs:
                    tiles.multiply(accumulator, registers.left(p), registers.right(h))
            for p, h, accumulator in pairs:
                tiles.store(accumulator, out, functools.partial(_place, t, p, h), ROW_BYTES)
            tiles.end()
    return builder.get()


def _element(operand: Any, tile: int, row: Any, column: Any) -> Any:
    """Of a tile of an operand."""
    return operand[tile, row, column]


def _place(*index: Any) -> tuple[Any, ...]:
    """Of a sum: thread, tile of either side, row, column."""
    return index


def _declared(*arguments: tuple[tuple[int, ...], str]) -> list[Any]:
    """Parameters of the function that is being built."""
    T.func_name(_ENTRY)
    T.func_attr({"tirx.noalias": True})
    return [T.arg(name, T.buffer(shape, dtype)) for name, (shape, dtype) in zip("xwo", arguments, strict=True)]


def _ones(dtype: str, shape: tuple[int, ...]) -> Any:
    return tvm.runtime.tensor(np.ones(shape, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))


def _checked(function: Any, arguments: tuple[Any, ...], total: int) -> Callable[[], Any]:
    """A call, after one whose sums are all as they must be."""
    function(*arguments)
    np.testing.assert_array_equal(arguments[-1].numpy(), total)
    return lambda: function(*arguments)
