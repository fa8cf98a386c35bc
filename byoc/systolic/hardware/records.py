"""The 64-byte instructions of :mod:`..code.isa` as layouts of bits: the hardware decodes what a program's file has."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Mux, Shape, Value
from amaranth.lib import data

from ..code.isa import FORMS, RECORD_BYTES, Gemm, Load, LoadWindows, Reduce, Store, Vector

_SHAPE_OF = {"B": 8, "H": 16, "I": 32, "Q": 64, "b": Shape(8, True), "i": Shape(32, True), "f": 32}


def layout_of(kind: type[Any]) -> data.StructLayout:
    """Code, tokens and fields of an instruction, at their bits of the record."""
    form = FORMS[kind]
    letters = form.packer.format.removeprefix("<BB")
    fields = {name: _SHAPE_OF[letter] for name, letter in zip(form.names, letters, strict=True)}
    layout = data.StructLayout({"code": 8, "tokens": 8, **fields})
    return data.StructLayout({**layout.members, "zeros": 8 * RECORD_BYTES - layout.size})


def choice(kind: type[Any], field: str, value: Any) -> int:
    """The number by which a field holds one of its choices."""
    form = FORMS[kind]
    return form.choices[form.names.index(field)].index(value)


def is_a(record: Value, kind: type[Any]) -> Value:
    """Whether a record is an instruction of that class."""
    return record[:8] == FORMS[kind].code


GEMM, VECTOR, REDUCE, STORE = (layout_of(kind) for kind in (Gemm, Vector, Reduce, Store))
LOAD, WINDOWS = (layout_of(kind) for kind in (Load, LoadWindows))
#: What the chip needs of a load: where in the scratchpad its tile goes, and the tile's sizes.
TILE = data.StructLayout({"dst": 32, "rows": 32, "cols": 32})


def tile_of(record: Value) -> data.View:
    """The tile of any of the loads, as TILE."""
    load, windows = (Cat(view.dst, view.rows, view.cols) for view in (LOAD(record), WINDOWS(record)))
    return TILE(Mux(is_a(record, LoadWindows), windows, load))
