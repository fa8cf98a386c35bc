"""Operators of no other family."""

from __future__ import annotations

from .. import row_rules
from ..operator import Operator

ROWS = (
    Operator("relax.multinomial_from_uniform Multinomial", random=True),
    Operator("Bernoulli", random=True),
    Operator("relax.one_hot OneHot", rows=row_rules.free, shape_operands={1: "depth"}),
    Operator("NonZero", jump="step", shape_arithmetic="not larger"),
    Operator("Unique", jump="step"),
    Operator("QLinearConcat", jump="quantized", int8="only"),
    Operator("relax.call_tir", rows=row_rules.aligned),  # the kernel itself is compared element by element
)
