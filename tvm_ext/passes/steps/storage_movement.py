"""Decodes below data movement: an operator that only moves elements moves stored ones.

permute_dims(dequantize(q))        ->   dequantize(permute_dims(q))
concat(astype(a), astype(b))       ->   astype(concat(a, b))
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from ...core.graph.relax_graph import attrs_of, op_name, shape_of, tuple_item
from ...core.numbers.precision import rounded
from ...ops import Kind, of
from ..simplification.fold_constants import folded_call
from ..simplification.rules import Site
from .stored_values import Conversion, decode_of

_AxisAfter = Callable[[Call, int, tuple[int, ...]], "int | None"]
"""(movement, axis of its operand, shape of its result) -> the same axis of the result; None if it does not survive."""


# ------------------------------------------------------------ where an axis goes
def _reshaped(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    """The dimension of the same extent, with as many elements before it."""
    before = shape_of(call.args[0]) or ()
    ahead = math.prod(before[:axis])
    places = (i for i, size in enumerate(shape) if size == before[axis] and math.prod(shape[:i]) == ahead)
    return next(places, None)


def _permuted(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    axes = attrs_of(call, ["axes"])["axes"]
    order = tuple(reversed(range(len(shape)))) if axes is None else tuple(int(a) % len(shape) for a in axes)
    return order.index(axis)


def _sliced(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    touched = {int(a.value) % len(shape) for a in call.args[1].fields}
    return None if axis in touched else axis


def _joined(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    along = attrs_of(call, ["axis"])["axis"]
    return axis if along is not None and int(along) % len(shape) != axis else None


def _picked(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    along = attrs_of(call, ["axis"])["axis"]
    rank, picked = len(shape_of(call.args[0]) or ()), len(shape_of(call.args[1]) or ())
    if along is None or int(along) % rank == axis:
        return None
    return axis if axis < int(along) % rank else axis + picked - 1


def _pooled(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    return axis if str(call.attrs.layout).find("C") == axis else None


def _lost(call: Call, axis: int, shape: tuple[int, ...]) -> int | None:
    return None


#: Operator -> where an axis goes, of those that neither lose all nor are another shape of the same memory.
_MOVES: dict[str, _AxisAfter] = {
    "relax.permute_dims": _permuted,
    "relax.strided_slice": _sliced,
    "relax.take": _picked,
    "relax.nn.pad": _lost,
    **{f"relax.nn.max_pool{n}d": _pooled for n in (1, 2, 3)},
    "relax.image.resize2d": _lost,
}


def _axis_after(call: Call) -> _AxisAfter | None:
    """Where an axis goes that an operator moves with the elements of its first operand; None if it moves none."""
    row = of(op_name(call))
    moves = row.keeps_elements or row.part_read
    otherwise = (_reshaped if row.kind is Kind.VIEW else _lost) if moves else None
    return _MOVES.get(op_name(call), otherwise)


# ------------------------------------------------------------ what an operator becomes
def _padded(call: Call, decode: Conversion) -> Call | str:
    """The padding of the stored tensor, with what stands for the padded number."""
    if str(call.attrs.pad_mode) != "constant":
        return Call(call.op, [decode.call.args[0]], call.attrs, call.ty_args)
    number = float(getattr(call.attrs.pad_value, "value", call.attrs.pad_value))
    value = decode.exact(number) if decode.parameters else _exact(number, decode.stored)
    if value is None:
        return f"no stored value stands for the {number:g} of the padding exactly"
    return relax.op.nn.pad(decode.call.args[0], [int(w) for w in call.attrs.pad_width], "constant", float(value))


def _exact(number: float, dtype: str) -> float | None:
    """The number, if a narrow float type has it."""
    return number if float(rounded(np.array(number, np.float32), dtype)) == number else None


def _greatest(call: Call, decode: Conversion) -> Call | str:
    """Max pooling of the stored tensor: its order is that of the numbers."""
    attrs = attrs_of(call, ["dilation", "padding"])
    if not decode.increases:
        return "the largest stored value is not known to stand for the largest number"
    if any(attrs["padding"]) and any(int(d) != 1 for d in attrs["dilation"]):
        return "a dilated window may lie outside of the image, where the two have different smallest values"
    return Call(call.op, [decode.call.args[0]], call.attrs, call.ty_args)


def _nearest(call: Call, decode: Conversion) -> Call | str:
    """A resize that picks elements."""
    if str(call.attrs.method) != "nearest_neighbor" or "crop" in str(call.attrs.coordinate_transformation_mode):
        return "it computes more than which elements are nearest"
    if str(call.attrs.out_dtype) not in ("None", "", "void"):
        return "its result has another type"
    return Call(call.op, [decode.call.args[0], *call.args[1:]], call.attrs, call.ty_args)


def _as_it_is(call: Call, decode: Conversion) -> Call | str:
    return Call(call.op, [decode.call.args[0], *call.args[1:]], call.attrs, call.ty_args)


_OTHERWISE: dict[str, Callable[[Call, Conversion], Call | str]] = {
    "relax.nn.pad": _padded,
    "relax.image.resize2d": _nearest,
    **{f"relax.nn.max_pool{n}d": _greatest for n in (1, 2, 3)},
}


class Movement:
    """The rule; split tensors are remembered, so that each is split once."""

    def __init__(self) -> None:
        self._splits: dict[relax.Var, relax.Var] = {}

    def __call__(self, value: Any, site: Site) -> Any:
        """movement(decode(q)) -> decode(movement(q)); None if it is none, or must stay."""
        if item := tuple_item(value):
            return self._item(*item, site)
        name = op_name(value)
        if name == "relax.concat":
            return _concat(value, site)
        single = isinstance(value, Call) and not isinstance(value.ty, relax.TupleType) and value.args
        decode = decode_of(value.args[0], site.rw) if single and _axis_after(value) is not None else None
        if decode is None:
            return None
        moved = _OTHERWISE.get(name, _as_it_is)(value, decode)
        return _below(value, moved, decode, [value.args[0]], site)

    def _item(self, source: Any, index: int, site: Site) -> Any:
        call = site.inner(source, "relax.split")
        decode = decode_of(call.args[0], site.rw) if call is not None else None
        shape = shape_of(site.var)
        if call is None or decode is None or shape is None:
            return None
        if decode.axis is not None and (axis := _joined(call, decode.axis, shape)) is None:
            return site.rw.skip("split along the axis of its scales")
        if source not in self._splits:
            self._splits[source] = site.rw.emit(_as_it_is(call, decode))
        item = site.rw.emit(relax.TupleGetItem(self._splits[source], index))
        decoded = decode.of(item, None if decode.axis is None else axis)
        return site.replaced(decoded, "split as it is stored, and decoded behind it", call.args[0])


def _concat(call: Call, site: Site) -> Any:
    operands = list(getattr(site.rw.definition(call.args[0]), "fields", ()))
    known = [decode_of(operand, site.rw) for operand in operands]
    decodes = [d for d in known if d is not None]
    if not decodes:
        return None
    if len(decodes) < len(operands) or not all(d.same(decodes[0]) for d in decodes):
        return site.rw.skip("concat: its operands are not all stored in one scale")
    moved = relax.op.concat(relax.Tuple([d.call.args[0] for d in decodes]), attrs_of(call, ["axis"])["axis"])
    return _below(call, moved, decodes[0], operands, site)


def _below(call: Call, moved: Call | str, decode: Conversion, operands: Sequence[Any], site: Site) -> Any:
    """The decode of the moved tensor, with its axis where that is now."""
    short, shape = op_name(call).removeprefix("relax.").removeprefix("nn."), shape_of(site.var)
    axis_after = _joined if op_name(call) == "relax.concat" else _axis_after(call)
    assert axis_after is not None
    axis = axis_after(call, decode.axis, shape) if decode.axis is not None and shape is not None else None
    if shape is None or (decode.axis is not None and axis is None):
        moved = "the axis of its scales does not survive" if shape is not None else "its shape is not known"
    if isinstance(moved, str):
        return site.rw.skip(f"{short}: {moved}")
    typed = site.rw.normalize(moved)
    constant = folded_call(typed, site.rw)
    stored = site.rw.emit(typed) if constant is None else constant
    return site.replaced(decode.of(stored, axis), f"{short} of what is stored, decoded behind it", *operands)
