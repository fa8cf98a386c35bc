"""Bounds of indices at run time."""

from typing import Any

import pytest
from tvm import tirx

from tvm_ext.core.sizes import evaluate
from tvm_ext.passes.tir.cutting.affine import Arithmetic, UnboundedError

ROWS, COLUMNS = 6, 5


def names() -> tuple[Arithmetic, Any, Any, Any, Any]:
    """Run-time counts of rows and columns, and loops over up to as many."""
    arithmetic, dtype = Arithmetic(), "int32"
    rows, columns, y, x = (tirx.Var(name, dtype) for name in ("rows", "columns", "y", "x"))
    for var, bound, low in ((rows, ROWS, 1), (columns, COLUMNS, 1), (y, ROWS, 0), (x, COLUMNS, 0)):
        arithmetic.bind(var, bound, low)
    return arithmetic, rows, columns, y, x


def test_products_of_what_is_not_negative_are_bounded_by_those_of_bounds() -> None:
    arithmetic, rows, columns, y, x = names()
    last = {y: rows - 1, x: columns - 1}
    limit = lambda var, largest: (last[var] if largest else tirx.const(0, "int32")) if var in last else None  # noqa: E731
    top = arithmetic.extreme(y * columns + x, True, limit)
    least = arithmetic.extreme(y * columns + x, False, limit)
    for h, w in ((1, 1), (4, 3), (ROWS, COLUMNS)):
        assert evaluate(top, {"rows": h, "columns": w}) == h * w - 1
        assert evaluate(least, {"rows": h, "columns": w}) == 0


def test_what_is_known_is_its_own_bound() -> None:
    """Not the number at the bound: of a product whose factor may be negative, for all that its range says."""
    arithmetic, rows, columns, *_ = names()
    known = (rows - 2) * columns
    assert arithmetic.extreme(known, True, lambda var, largest: None).same_as(known)


def test_what_is_read_from_memory_has_no_bound() -> None:
    arithmetic, rows, columns, *_ = names()

    def limit(var: Any, largest: bool) -> Any:
        raise UnboundedError

    with pytest.raises(UnboundedError):
        arithmetic.extreme((rows - 2) * columns, True, limit)
