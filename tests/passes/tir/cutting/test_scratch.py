"""Which buffers are allocated inside the loops around which they stood."""

from typing import Any

import pytest
from tvm import tirx

from tvm_ext.passes.tir.cutting.scratch import sunk
from tvm_ext.passes.tir.cutting.statements import serial


def _stores(kind: str) -> Any:
    """t = alloc [8]; for i: { t[...] = ...; for k: y[i] = y[i] + t[k] }"""
    t, y = tirx.decl_buffer((8,), "float32", "t"), tirx.decl_buffer((4,), "float32", "y")
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")
    one, eight = tirx.const(1.0, "float32"), tirx.const(8, "int32")
    written = {
        "whole": serial(j, eight, tirx.BufferStore(t, one, [j])),
        "a part": serial(j, tirx.const(7, "int32"), tirx.BufferStore(t, one, [j])),
        "sometimes": serial(j, eight, tirx.IfThenElse(i > 0, tirx.BufferStore(t, one, [j]), None)),
        "added to": serial(j, eight, tirx.BufferStore(t, t[j] + one, [j])),
    }[kind]
    read = serial(k, eight, tirx.BufferStore(y, y[i] + t[k], [i]))
    loop = serial(i, tirx.const(4, "int32"), tirx.SeqStmt([written, read]))
    return tirx.SeqStmt([tirx.AllocBuffer(t), loop])


@pytest.mark.parametrize(
    ("kind", "inside"), [("whole", True), ("a part", False), ("sometimes", False), ("added to", False)]
)
def test_what_an_iteration_writes_whole_is_its_own(kind: str, inside: bool) -> None:
    stmt = sunk(_stores(kind))
    assert isinstance(stmt, tirx.For) == inside
    first = stmt.body.seq[0] if inside else stmt.seq[0]
    assert isinstance(first, tirx.AllocBuffer)
