"""How a kernel reads an operand that is stored in another type than it computes with.

    reader(...)(n, c // 16, y, x, c % 16)   ->   (float32(p[n, c // 16, y, x, c % 16]) - zero) * scale

Recipes that compute in float32 read every operand through :func:`reader` (:meth:`.arguments.Arguments.reader`). Those
that compute on what is stored ask :class:`Decoding` what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import dtype_of, op_name, scalar_of, shape_of
from tvm_ext.core.recipe import Group, Layout, Miss, Param
from tvm_ext.ops.scalars.operators import scalar_call
from tvm_ext.ops.table import of

from .loops import flat_map


@dataclass(frozen=True)
class Decoding:
    """What the elements of an operand stand for.

    Attributes:
        kind: "none"; "widen" (bfloat16); "dequantize" ((x - zero) * scale); "shift" (x - zero, in int32).
        stored: dtype in memory.
        scale: a number; a parameter (a vector along `axis`, or a computed number).
        zero_point: a number; None if it is none that is known at compile time.
        axis: logical axis along which scales differ.
    """

    kind: str
    stored: str
    scale: float | Param = 1.0
    zero_point: int | None = 0
    axis: int = 0

    @staticmethod
    def of(group: Group, param: Param) -> Decoding:
        """That of an operand of the anchor."""
        if not param.decode:
            return Decoding("none", param.dtype)
        last = param.decode[-1]
        if op_name(last) == "relax.dequantize":
            scale = scalar_of(last.args[1])
            owner = group.param(last.args[1]) if scale is None else None
            rank = len(shape_of(last) or ())
            assert scale is not None or owner is not None
            known = float(scale) if scale is not None else owner
            return Decoding("dequantize", param.dtype, known, _whole(last.args[2]), int(last.attrs.axis) % max(rank, 1))  # type: ignore[arg-type]
        if param.computed == "int32":
            zero = _whole(last.args[1]) if op_name(last) == "relax.subtract" else 0
            return Decoding("shift", param.dtype, 1.0, zero)
        return Decoding("widen", param.dtype)


def _whole(expr: Any) -> int | None:
    value = scalar_of(expr)
    return None if value is None else int(value)


Reader = Callable[..., Any]
"""Physical index -> the value there, as the anchor reads it."""


def reader(group: Group, tensors: Sequence[Any], layouts: Sequence[Layout], param: Param) -> Reader:
    """Reads an operand of the anchor at physical indices, and decodes it.

    Args:
        group: the group.
        tensors, layouts: of its parameters, in order.
        param: the operand.
    """
    where = group.params.index(param)
    tensor, layout = tensors[where], layouts[where]
    decode = decoder(group, tensors, layouts, param)
    return (lambda *index: decode(tensor(*index), lambda: layout.logical(index))) if param.decode else tensor


def decoder(
    group: Group, tensors: Sequence[Any], layouts: Sequence[Layout], param: Param
) -> Callable[[Any, Callable[[], Sequence[Any]]], Any]:
    """(what is stored of an operand, where: its logical index) -> the number that it stands for."""
    where = {p.var: k for k, p in enumerate(group.params)}

    def parameter(call: Call, operand: Any, place: Sequence[Any]) -> Any:
        if (value := scalar_of(operand)) is not None:
            return tirx.const(value, dtype_of(operand))
        shape, axis = shape_of(operand) or (), int(call.attrs.axis) % max(len(param.shape), 1)
        at = [tirx.min(place[axis], d - 1) for d in shape]  # a lane beyond the last channel: the last
        return tensors[where[operand]](*layouts[where[operand]].index(at))

    def decode(value: Any, place: Callable[[], Sequence[Any]]) -> Any:
        for call in param.decode:
            along = of(op_name(call)).per_axis
            rest = [parameter(call, a, place()) for a in call.args[1:]] if along else _scalars(call)
            value = scalar_call(call, [value, *rest])
        return value

    return decode


def schedule_decoded(sch: Schedule, param: Param, threads: int, lanes: int) -> None:
    """The stage of :meth:`.arguments.Arguments.decoded`, if there is one."""
    if param.decode:
        flat_map(sch, sch.get_sblock("decoded"), threads, lanes)


def _scalars(call: Call) -> list[Any]:
    return [tirx.const(scalar_of(a), dtype_of(a)) for a in call.args[1:]]


def why_not_float32(group: Group, *operands: Param) -> str:
    """Why a recipe that computes in float32 does not take an anchor of these operands; "" if it does."""
    other = next((t for t in (*(p.computed for p in operands), group.computed) if t != "float32"), "")
    return f"dtype {other}: this recipe computes float32" if other else ""


def float32_operand(group: Group, number: int) -> Param | Miss:
    """The parameter that operand `number` of the anchor is, of a recipe that computes in float32; or why it takes it
    not."""
    if (param := group.operand(number)) is None:
        return Miss("the operand is computed inside the group")
    why = why_not_float32(group, param) or ("the input is empty" if 0 in param.shape else "")
    return Miss(why) if why else param
