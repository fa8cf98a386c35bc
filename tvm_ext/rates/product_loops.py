"""Loops in TIR that measure instructions on narrow numbers: dot products of vectors, and what tile registers do.

dot:        sums[c] += x . w                   vpdpbusd or vdpbf16ps, enough chains at once to hide the latency
            sums[c] += sums[c] . w             vpmaddwd, which a compiler would take out of the loop otherwise
tiles:      acc[p, h] += left[p] x right[h]    a product of AMX, two by two accumulators, as kernels have them
tile_read:  registers = x[i]                   loads of four tile registers, one after another in memory

Operands are words of 32 bits, whatever the numbers in them.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .instructions import (
    BF16_SOURCE,
    COLUMNS,
    INSTRUCTIONS,
    LANES,
    ROW_BYTES,
    ROWS,
    Product,
    tile_configuration,
    tile_instruction,
    vdpbf16ps,
    vpdpbusd,
    vpmaddwd,
)
from .loops import Vectors, declared

#: Accumulators of a loop of dot products: six cycles of latency, two a cycle, and some to spare.
DOT_CHAINS = 14
#: Accumulators of a loop of tiles, of `SIDE` left registers by as many right ones.
SIDE, ACCUMULATORS = 2, 4
#: float32 of the registers that a step of a loop of loads fills, and their bytes.
LOADED_SHAPE = 4, ROWS, COLUMNS
STEP_BYTES = 4 * ROWS * ROW_BYTES
_PAIRS = tuple(itertools.product(range(SIDE), repeat=2))


def product_kernel(product: Product, threads: int, name: str, lanes: int = LANES) -> tirx.PrimFunc:
    """NAME(steps, .., out): a step of a thread is one instruction for each of its accumulators out[thread].

    Between are operands, in words: (1,) and (lanes,) of a dot product; of tiles the configuration, and twice
    (2, 16, 16).
    """
    return _tiles_kernel(product, threads, name) if product.tiles else _dot_kernel(product, threads, name, lanes)


def _dot_kernel(product: Product, threads: int, name: str, lanes: int) -> tirx.PrimFunc:
    vector, index, sums_there = f"{product.result}x{lanes}", tirx.Ramp(0, 1, lanes), sums_of(product, threads, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        steps, x, w, out = declared(name, ["steps"], [((1,), "int32"), ((lanes,), "int32"), sums_there])
        with T.sblock("root"), T.parallel(threads) as t:
            sums = T.alloc_buffer((DOT_CHAINS, lanes), product.result, scope="local")
            with T.unroll(DOT_CHAINS) as c:
                T.buffer_store(sums, tirx.Broadcast(tirx.const(_first(product), product.result), lanes), [c, index])
            with T.serial(steps), T.unroll(DOT_CHAINS) as c:
                words = tirx.Broadcast(x[0], lanes), w.vload([0], f"int32x{lanes}")
                T.buffer_store(sums, _added(product, sums.vload([c, 0], vector), *words), [c, index])
            with T.unroll(DOT_CHAINS) as c:
                T.buffer_store(out, sums.vload([c, 0], vector), [t, c, index])
    kernel = builder.get()
    if product.left != "bfloat16":
        return kernel
    source = tvm.ir.StringImm(BF16_SOURCE)
    return kernel.with_body(tirx.AttrStmt(tirx.const(0), "pragma_import_llvm", source, kernel.body))


def _added(product: Product, acc: Any, x: Any, w: Any) -> Any:
    if product.instruction == "vpmaddwd":
        return acc + vpmaddwd(acc, w, int(w.ty.dtype.lanes))
    return (vpdpbusd if product.left == "uint8" else vdpbf16ps)(acc, x, w)


def _doubled(steps: int) -> int:
    """1 after so many steps of s + low(s), where low(s) are the lower 16 bits as a signed number."""
    return 2**steps if steps < 16 else 0  # 2**15 is the negative number of 16 bits


def _first(product: Product) -> int:
    """What a chain of dot products begins with."""
    return int(product.instruction == "vpmaddwd")


def _tiles_kernel(product: Product, threads: int, name: str) -> tirx.PrimFunc:
    operand = (SIDE, ROWS, COLUMNS), "int32"
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        steps, config, left, right, out = declared(
            name, ["steps"], [_CONFIGURATION, operand, operand, sums_of(product, threads)]
        )
        with T.sblock("root"), T.parallel(threads) as t:
            tile_instruction("ldtilecfg", T.address_of(config[0]))
            for i in range(SIDE):
                _move("tileloadd64", ACCUMULATORS + i, left[i, 0, 0])
                _move("tileloadd64", ACCUMULATORS + SIDE + i, right[i, 0, 0])
            for accumulator in range(ACCUMULATORS):
                tile_instruction("tilezero", accumulator)
            with T.serial(steps):
                for accumulator, (p, h) in enumerate(_PAIRS):
                    tile_instruction(product.instruction, accumulator, ACCUMULATORS + p, ACCUMULATORS + SIDE + h)
            for accumulator in range(ACCUMULATORS):
                _move("tilestored64", accumulator, out[t, accumulator, 0, 0])
            tile_instruction("tilerelease")
    return builder.get()


def tile_read_kernel() -> tirx.PrimFunc:
    """tile_read(passes, steps, config, x, out): loads x as (steps, 4, 16, 16) float32; out is the last step of it."""
    x_of, out_of = ((tirx.Var("size", "int32"),), "float32"), (LOADED_SHAPE, "float32")
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        passes, steps, config, x, out = declared("tile_read", ["passes", "steps"], [_CONFIGURATION, x_of, out_of])
        with T.sblock("root"):
            tile_instruction("ldtilecfg", T.address_of(config[0]))
            with T.serial(passes), T.serial(steps) as i:
                for tile in range(LOADED_SHAPE[0]):
                    _move("tileloadd64", tile, x[(i * LOADED_SHAPE[0] + tile) * (ROWS * COLUMNS)])
            for tile in range(LOADED_SHAPE[0]):
                _move("tilestored64", tile, out[tile, 0, 0])
            tile_instruction("tilerelease")
    return builder.get()


_CONFIGURATION = (64,), "uint8"


def _move(name: str, tile: int, element: Any) -> None:
    """A load or store of a whole register, whose rows lie one after another from an element on."""
    tile_instruction(name, tile, T.address_of(element), tirx.const(ROW_BYTES, "int64"))


def per_step(product: Product) -> int:
    """Instructions in a step of a thread."""
    return ACCUMULATORS if product.tiles else DOT_CHAINS


def sums_of(product: Product, threads: int, lanes: int = LANES) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of all accumulators."""
    each = (ROWS, COLUMNS) if product.tiles else (lanes,)
    return (threads, per_step(product), *each), product.result


def configuration() -> Any:
    """Of eight whole tile registers, as an argument."""
    return tvm.runtime.tensor(np.frombuffer(tile_configuration([(ROWS, ROW_BYTES)] * 8), np.uint8).copy())


def arguments_of(product: Product, threads: int, lanes: int = LANES) -> list[Any]:
    """What :func:`product_kernel` takes behind the steps: operands of ones, and zeros for the sums.

    Of `vpmaddwd` only the lower number of a word is 1, so that sums, operands themselves, double.
    """
    shape, dtype = sums_of(product, threads, lanes)
    shapes = [(SIDE, ROWS, COLUMNS)] * 2 if product.tiles else [(1,), (lanes,)]
    one = np.array({"bfloat16": 0x3F803F80, "int16": 1}.get(product.left, 0x01010101), np.int32)
    first = [configuration()] if product.tiles else []
    return [*first, *(tvm.runtime.tensor(np.full(s, one)) for s in shapes), tvm.runtime.tensor(np.zeros(shape, dtype))]


def call_of_instruction(machine: Vectors, name: str, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of an instruction on ones, checked, and how many operations it does.

    Args:
        machine: must have the instruction, and decides on threads; of tiles this process must have the registers.
        name: the mnemonic, as :meth:`tvm_ext.core.recipe.Recipe.instruction` has it.
        steps: instructions of a chain of dot products, or products of tiles, shared among the threads.

    Raises:
        ValueError: there is no such instruction.
    """
    if name not in INSTRUCTIONS:
        raise ValueError(f"no instruction {name!r}: there are {', '.join(INSTRUCTIONS)}")
    product, threads = INSTRUCTIONS[name], machine.threads
    each = steps // threads // (ACCUMULATORS if product.tiles else 1)
    function = tvm.compile(product_kernel(product, threads, name, machine.lanes), target=machine.target())[name]
    arguments = arguments_of(product, threads, machine.lanes)
    deep = product.lanes if product.tiles else product.group
    function(each, *arguments)
    sums = arguments[-1].numpy()
    np.testing.assert_array_equal(sums, _doubled(each) if _first(product) else each * deep)
    return lambda: function(each, *arguments), 2.0 * each * sums.size * deep
