"""Weights of products of integers, which keep the type they are stored in.

conv2d(x, astype(W, int32) - z)        W: a constant of 8 bits, z: one zero point
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import Rewriter, dtype_of, op_name
from ...ops.table import of
from .constants import view_of

_BYTES = frozenset({"int8", "uint8"})


def is_integer_weight(binding: relax.VarBinding, rw: Rewriter) -> bool:
    """Whether a binding widens a constant of 8 bits that only products of integers read."""
    value = binding.value
    if op_name(value) != "relax.astype" or dtype_of(value) != "int32" or dtype_of(value.args[0]) not in _BYTES:
        return False
    if not isinstance(rw.definition(value.args[0]), GenericConst):
        return False
    return _all_read(binding.var, rw, lambda reader, var: _multiplies(reader, var, rw))


def _multiplies(reader: relax.Var, var: relax.Var, rw: Rewriter) -> bool:
    """Whether a reader is a product, or takes one zero point away for products."""
    value = rw.defs[reader]
    if of(op_name(value)).integers:
        return True
    if op_name(value) != "relax.subtract" or not value.args[0].same_as(var) or not _one_value(value.args[1], rw):
        return False
    return _all_read(reader, rw, lambda last, _: of(op_name(rw.defs[last])).integers)


def _all_read(var: relax.Var, rw: Rewriter, fits: Any) -> bool:
    readers = rw.uses.get(var, ())
    return bool(readers) and all(reader is not None and fits(reader, var) for reader in readers)


def _one_value(expr: Any, rw: Rewriter) -> bool:
    """Whether an operand is a constant of which all elements are the same, or one in another type or shape."""
    found = rw.definition(expr)
    while op_name(found) in ("relax.astype", "relax.reshape"):
        found = rw.definition(found.args[0])
    view = view_of(found)
    return view is not None and view.size > 0 and bool((view == view.flat[0]).all())
