"""Vectors of bfloat16, where TVM's way of making integers of them falls short.

    Broadcast(x, 16)                              ->   the bits of x, broadcast
    float32 rounded to bfloat16, in integers      ->   vcvtneps2bf16, where the CPU has it
    dot products of words                         ->   vdpbf16ps, whose function is brought along

The instructions take denormal numbers for zero.
"""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, StringImm
from tvm.target import codegen

from ...core.graph.nodes import nodes_of
from ...rates import instructions

#: Lanes -> suffix of LLVM's name of the instruction.
_WIDTHS = {16: "512", 8: "256"}
#: TVM has no LLVM type for vectors of bfloat16. This function gives their bits; LLVM inlines it.
_SOURCE = """
define linkonce_odr <{lanes} x i16> @{name}(<{lanes} x float> %x) alwaysinline nounwind readnone {{
  %r = call <{lanes} x bfloat> @{llvm}(<{lanes} x float> %x)
  %b = bitcast <{lanes} x bfloat> %r to <{lanes} x i16>
  ret <{lanes} x i16> %b
}}
declare <{lanes} x bfloat> @{llvm}(<{lanes} x float>)
"""
#: The same of 32 lanes, as two of 16.
_HALVES = """
define linkonce_odr <32 x i16> @{name}(<32 x float> %x) alwaysinline nounwind readnone {{
  %l = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{low}>
  %h = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{high}>
  %a = call <16 x i16> @{half}(<16 x float> %l)
  %b = call <16 x i16> @{half}(<16 x float> %h)
  %r = shufflevector <16 x i16> %a, <16 x i16> %b, <32 x i32> <{low}, {high}>
  ret <32 x i16> %r
}}
declare <16 x i16> @{half}(<16 x float>)
"""


def broadcast_bits(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Broadcast(x, n)  ->  reinterpret(bfloat16, Broadcast(reinterpret(uint16, x), n)), for a bfloat16 x."""

    def broadcast(node: tirx.Broadcast) -> Any:
        if str(node.value.ty.dtype) != "bfloat16":
            return node
        bits = tirx.Broadcast(tirx.reinterpret("uint16", node.value), node.lanes)
        return tirx.reinterpret(f"bfloat16x{int(node.lanes)}", bits)

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.Broadcast, broadcast)))


def round_in_one(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """What :mod:`...ops.scalars.functions` makes of a rounding becomes one instruction, for vectors."""
    if not nodes_of(function.body, tirx.Let):  # calls are many, and each costs; so does a look at the target
        return function
    if not codegen.target_has_features("avx512bf16", function.attrs["target"]):
        return function
    used: set[int] = set()

    def rounding(call: Call) -> Any:
        if (value := _rounded(call)) is None:
            return call
        lanes = int(tvm.DataType(str(value.ty.dtype)).lanes)
        used.update({lanes, 16} if lanes > 16 else {lanes})
        return tirx.reinterpret(str(call.ty.dtype), tirx.call_pure_extern(f"uint16x{lanes}", _name(lanes), value))

    body = tvm_ffi.structural_map(function.body, (Call, rounding))
    return function.with_body(_with_functions(body, [_source(lanes) for lanes in sorted(used)]))


def bring_dots(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Kernels that call the function of `vdpbf16ps` (:mod:`...rates.instructions`) bring it along.

    Only now: the text of a scheduled kernel, which people read and resume from, has no LLVM in it.
    """
    calls = nodes_of(function.body, Call)
    externs = (call for call in calls if getattr(call.op, "name", "") == "tirx.call_pure_extern")
    dots = any(str(call.args[0].value) == instructions.BF16 for call in externs)
    return function.with_body(_with_functions(function.body, [instructions.BF16_SOURCE])) if dots else function


def _with_functions(body: Any, sources: Sequence[str]) -> Any:
    for source in sources:
        body = tirx.AttrStmt(tirx.const(0), "pragma_import_llvm", StringImm(source), body)
    return body


def _name(lanes: int) -> str:
    return f"tvm_ext_vcvtneps2bf16_{lanes}"


def _source(lanes: int) -> str:
    """LLVM's text of the function that rounds so many lanes."""
    if lanes > 16:
        low, high = (", ".join(f"i32 {lane}" for lane in range(first, first + 16)) for first in (0, 16))
        return _HALVES.format(name=_name(lanes), half=_name(16), low=low, high=high)
    llvm = f"llvm.x86.avx512bf16.cvtneps2bf16.{_WIDTHS[lanes]}"
    return _SOURCE.format(lanes=lanes, name=_name(lanes), llvm=llvm)


def _rounded(call: Call) -> Any:
    """What a call rounds to a vector of bfloat16; None if it does not: reinterpret(bfloat16, let bits = .. in ..)."""
    if not _is_reinterpret(call) or not isinstance(call.args[0], tirx.Let):
        return None
    value, lanes = call.args[0].value, int(tvm.DataType(str(call.ty.dtype)).lanes)
    fits = str(call.ty.dtype) == f"bfloat16x{lanes}" and lanes in (*_WIDTHS, 32) and _is_reinterpret(value)
    return value.args[0] if fits else None


def _is_reinterpret(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") == "tirx.reinterpret"
