"""Dot-product instructions: each lane of an accumulator adds the products of a 32-bit word of narrow numbers.

    vpdpbusd    acc[j] += u8 * s8 + u8 * s8 + u8 * s8 + u8 * s8        int32, wraps        "avx512vnni"
    vpmaddwd    s16 * s16 + s16 * s16                                  int32, exact        "avx512bw", "avx2"
    vdpbf16ps   acc[j] += bf16 * bf16 + bf16 * bf16                    float32             "avx512bf16"

Without VNNI a word is two numbers of 16 bits: the kernel widens inputs as it copies them, and weights, which stay bytes
in memory, as it loads them. (`vpmaddubsw` takes bytes, but its sums saturate.)

A step of a blocked reduction (:mod:`..blocked.kernel`) is then one word: a word of the input is broadcast to all lanes,
and each lane has its own word of the weights. With words for steps everything there holds as it is: a word has the
bytes of a float32, and the instructions run at the rate of float32 multiply-adds.

A kernel is written in plain TIR, which runs anywhere: its **plain twin**, that tests compare with. Tensorizing
puts the instruction in the place of its innermost two loops, over lanes and over the elements of a word:

    for j in 16: for k in 4: acc[j] += int32(x[k]) * int32(w[j, k])    ->    acc[0:16] = vpdpbusd(acc[0:16], x, w)

Signed 8-bit inputs are read as x + 128, which takes one exclusive-or, and unsigned 8-bit weights as w - 128, which
their packing does (:class:`tvm_ext.core.numbers.dot_weight.DotWeight`). `vdpbf16ps` takes subnormal numbers for zeros
and rounds to nearest whatever the control register says: results differ from the plain twin by roundings of float32.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.machine import Machine
from tvm_ext.rates.instructions import LANES, vdpbf16ps, vpdpbusd, vpmaddwd

#: CPU feature -> the instruction that it brings.
_INSTRUCTIONS = {
    "": "", "avx512vnni": "vpdpbusd", "avx512bw": "vpmaddwd", "avx2": "vpmaddwd", "avx512bf16": "vdpbf16ps",
}  # fmt: skip


@dataclass(frozen=True)
class Dot:
    """A dot-product instruction on inputs and weights of certain types.

    Attributes:
        data, weight: dtypes in memory; "uint16" are the bits of bfloat16 data, of which TVM stores none in a workspace,
            "int16" bytes that the kernel has widened.
        feature: what the machine must have; "" for the plain loops, that tests compare with.
        lanes: of the accumulator.
    """

    data: str
    weight: str
    feature: str
    lanes: int = LANES

    @property
    def group(self) -> int:
        """Elements of a word."""
        return 2 if self.weight == "bfloat16" or self.widens else 4

    @property
    def weight_bytes(self) -> int:
        """Of a word of weights in memory: those that are widened have half of the others'."""
        return self.group * (2 if self.weight == "bfloat16" else 1)

    @property
    def widens(self) -> bool:
        """Whether it multiplies bytes as numbers of 16 bits."""
        return self.instruction == "vpmaddwd"

    @property
    def instruction(self) -> str:
        """Its mnemonic; "" of plain loops."""
        return _INSTRUCTIONS[self.feature]

    @property
    def result(self) -> str:
        """The dtype of sums."""
        return "float32" if self.weight == "bfloat16" else "int32"

    @property
    def raised(self) -> int:
        """What inputs are read larger by."""
        return 128 if self.data == "int8" and not self.widens else 0

    @property
    def rate(self) -> str:
        """The field of :class:`tvm_ext.rates.Rates` that it runs at."""
        if self.weight == "bfloat16":
            return "dot_bf16"
        return "dot_int16" if self.widens else "dot_int8"

    def missing(self, machine: Machine) -> str:
        """What a machine lacks to run it; empty if nothing."""
        if self.feature and (self.feature not in machine.features or machine.lanes != self.lanes):
            return f"the CPU ({machine.mcpu or machine.isa}) has no {self.feature}"
        return ""

    def product(self, x: Any, w: Any) -> Any:
        """One product, of elements as they lie in memory."""
        if self.weight == "uint8":  # the bits of a signed number
            w = tirx.reinterpret("int8", w)
        if self.data == "uint16":
            x = tirx.reinterpret("bfloat16", x)
        x, w = x.astype(self.result), w.astype(self.result)
        return (x + tirx.const(self.raised, self.result) if self.raised else x) * w


def multiply(sch: Schedule, dot: Dot) -> None:
    """Put the instruction in the place of the innermost loops of "tile", over lanes and elements of a word.

    The last step of a schedule: TVM finds no producers of what is tensorized.
    """
    if dot.feature:
        sch.tensorize(sch.get_loops(sch.get_sblock("tile_update"))[-2], _registered(dot))


def dot_of(data: str, weight: str, machine: Machine) -> Dot | None:
    """The instruction for inputs and weights of these dtypes: the first that the machine has, or the best there is."""
    if data == weight == "bfloat16":
        return Dot(data, weight, "avx512bf16")
    if not {data, weight} <= {"int8", "uint8"}:
        return None
    best, *others = (Dot(data, weight, *of) for of in (("avx512vnni", LANES), ("avx512bw", LANES), ("avx2", 8)))
    return next((dot for dot in (best, *others) if not dot.missing(machine)), best)


@functools.cache
def _registered(dot: Dot) -> str:
    """A loop nest over lanes and elements, and the instruction in its place."""
    name = f"tvm_ext.dot_{dot.data}_{dot.weight}_{dot.feature}"
    with _function(dot) as (builder, x, w, acc), T.serial(dot.lanes) as i, T.serial(dot.group) as e, T.sblock("dot"):
        j, k = T.axis.spatial(dot.lanes, i), T.axis.reduce(dot.group, e)
        T.buffer_store(acc, acc[j] + dot.product(x[k], w[j, k]), [j])
    description = builder.get()
    with _function(dot) as (builder, x, w, acc):
        word = tirx.reinterpret("int32", x.vload([0], f"{dot.data}x{dot.group}"))
        words = w.vload([0, 0], f"{dot.weight}x{dot.lanes * dot.group}")
        total = added(dot, acc.vload([0], f"{dot.result}x{dot.lanes}"), word, words)
        T.buffer_store(acc, total, [tirx.Ramp(0, 1, dot.lanes)])
    TensorIntrin.register(name, description, builder.get(), override=True)
    return name


@contextmanager
def _function(dot: Dot) -> Iterator[tuple[IRBuilder, Any, Any, Any]]:
    """A function of a word, the weights' words, and the accumulator, whose body is a block on all of them."""
    any_address = {"align": 1, "offset_factor": 1}
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("dot")
        x = T.arg("x", T.buffer((dot.group,), dot.data, **any_address))
        w = T.arg("w", T.buffer((dot.lanes, dot.group), dot.weight, **any_address))
        acc = T.arg("acc", T.buffer((dot.lanes,), dot.result, scope="local", **any_address))
        with T.sblock("root"):
            T.reads(acc[0 : dot.lanes], x[0 : dot.group], w[0 : dot.lanes, 0 : dot.group])
            T.writes(acc[0 : dot.lanes])
            yield builder, x, w, acc


def added(dot: Dot, acc: Any, word: Any, words: Any) -> Any:
    """The accumulator after the instruction.

    Args:
        acc: a vector of `dot.lanes` sums.
        word: of the input, as an int32.
        words: of the weights, a vector of as many elements as there are in the words of all lanes.
    """
    if dot.weight == "bfloat16":
        return vdpbf16ps(acc, tirx.Broadcast(word, LANES), tirx.reinterpret(f"int32x{LANES}", words))
    if dot.widens:
        wide = tirx.reinterpret(f"int8x{2 * dot.lanes}", words).astype(f"int16x{2 * dot.lanes}")
        products = vpmaddwd(tirx.Broadcast(word, dot.lanes), wide, dot.lanes)
        signed, wrapping = (f"{kind}32x{dot.lanes}" for kind in ("int", "uint"))  # LLVM lets only the latter wrap
        return tirx.reinterpret(signed, tirx.reinterpret(wrapping, acc) + tirx.reinterpret(wrapping, products))
    if dot.raised:
        word = tirx.bitwise_xor(word, tirx.const(-0x7F7F7F80, "int32"))  # 0x80808080
    return vpdpbusd(acc, tirx.Broadcast(word, LANES), words)
