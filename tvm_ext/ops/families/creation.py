"""Operators that make elements of a shape, a number or nothing at all, those that read a shape, and those of no other
family.
"""

import functools

from .. import evaluators, row_rules
from ..evaluators import filled
from ..operator import Kind, Operator

_create = functools.partial(Operator, kind=Kind.CREATE)
_filled = functools.partial(_create, rows=row_rules.free, uniform=True, sized=True)
_like = functools.partial(_create, rows=row_rules.aligned, shape_read=True)

ROWS = (
    _create("Constant", rounding="exact"),
    _create("ConstantOfShape", rounding="exact", shape_operands={0: "shape"}),
    _create("Range", shape_operands={0: "start", 1: "limit", 2: "delta"}),
    _create("Shape Size", shape_read=True, own_type=True, rounding="exact"),
    _filled("relax.full", numpy=filled(None)),
    _filled("relax.zeros", numpy=filled(0)),
    _filled("relax.ones", numpy=filled(1)),
    _like("relax.full_like", numpy=filled(None)),
    _like("relax.zeros_like", numpy=filled(0)),
    _like("relax.ones_like", numpy=filled(1)),
    _create("relax.arange", numpy=evaluators.arange),
    _create("relax.shape_to_tensor", numpy=evaluators.shape_to_tensor),
    _create("RandomNormal RandomNormalLike RandomUniform RandomUniformLike", random=True),
    # of no other family
    Operator("relax.multinomial_from_uniform Multinomial", random=True),
    Operator("Bernoulli", random=True),
    Operator("relax.one_hot OneHot", rows=row_rules.free, shape_operands={1: "depth"}),
    Operator("NonZero", jump="step", shape_arithmetic="not larger"),
    Operator("Unique", jump="step"),
    Operator("QLinearConcat", jump="quantized", int8="only"),
    Operator("relax.call_tir", rows=row_rules.aligned),  # the kernel itself is compared element by element
)
