"""Operators that compute each element of those at its place in the operands: arithmetic, functions, comparisons."""

from __future__ import annotations

import functools
import operator

import numpy as np

from .. import evaluators, row_rules
from ..evaluators import on_floats, on_integers, on_numbers, plainly
from ..operator import Kind, Operator

_row = functools.partial(Operator, kind=Kind.ELEMENTWISE)
_gentle = functools.partial(_row, non_expansive=True)
#: Results that are an operand, or no numbers.
_exact = functools.partial(_row, rounding="exact")
_step = functools.partial(_exact, jump="step")
_comparison = functools.partial(_step, types="comparison", shape_arithmetic="elementwise")

ARITHMETIC = (
    _gentle(
        ("relax.add",), ("Add",), numpy=on_numbers(np.add), tir=operator.add, types="numbers", rounding="once",
        magnitude="sum", shape_arithmetic="elementwise", int8="between", neutral=0.0,
    ),
    _gentle(
        ("relax.subtract",), ("Sub",), numpy=on_numbers(np.subtract), tir="strict_floats:minus", types="numbers",
        rounding="once", magnitude="sum", shape_arithmetic="elementwise", neutral=0.0,
    ),
    _gentle(
        ("relax.multiply",), ("Mul",), numpy=on_numbers(np.multiply), tir="strict_floats:times", types="numbers",
        rounding="once", magnitude="factors", shape_arithmetic="elementwise", neutral=1.0,
    ),
    _row(
        ("relax.divide",), ("Div",), numpy=evaluators.divide, tir="strict_floats:quotient", vector_work=2,
        rounding="once", magnitude="quotient", shape_arithmetic="elementwise", neutral=1.0,
    ),
    _gentle(
        ("relax.maximum",), ("Max",), numpy=on_numbers(np.maximum), tir="strict_floats:maximum", rounding="exact",
        shape_arithmetic="elementwise", idle=True,
    ),
    _gentle(
        ("relax.minimum",), ("Min",), numpy=on_numbers(np.minimum), tir="strict_floats:minimum", rounding="exact",
        shape_arithmetic="elementwise", idle=True,
    ),
    _row(
        ("relax.power",), ("Pow",), numpy=on_numbers(np.power), tir="tvm.tirx:power", vector_work=72,
        shape_arithmetic="elementwise", neutral=1.0,
    ),
    _gentle(
        ("relax.negative",), ("Neg",), numpy=on_numbers(np.negative), tir=operator.neg, types="numbers",
        rounding="exact", shape_arithmetic="elementwise", involution=True,
    ),
    _gentle(
        ("relax.abs",), ("Abs",), numpy=on_numbers(np.abs), tir="functions:absolute", types="numbers",
        not_negative=True, rounding="exact", shape_arithmetic="elementwise", idempotent=True,
    ),
    _gentle((), ("Sum",), rounding="once", magnitude="sum", shape_arithmetic="elementwise", idle=True),
    _gentle((), ("Mean",), idle=True),
    _row((), ("Reciprocal",), rounding="once", shape_arithmetic="elementwise", involution=True),
    _row(
        ("relax.mod",), ("Mod",), numpy=on_integers(np.fmod), jump="step", rounding="once",
        shape_arithmetic="elementwise",
    ),
    _row(("relax.floor_mod",), numpy=on_integers(np.mod), jump="step"),
    _row(("relax.floor_divide",), numpy=evaluators.floor_divide, jump="step"),
    _row(("relax.square",), numpy=on_numbers(np.square), not_negative=True),
    _row(("relax.log_add_exp",)),
)  # fmt: skip

FUNCTIONS = (
    _row(("relax.exp",), ("Exp",), numpy=on_floats(np.exp), tir="functions:exp", vector_work=7, not_negative=True),
    _row(("relax.log",), ("Log",), numpy=on_floats(np.log), tir="functions:log", vector_work=10),
    _row(
        ("relax.sqrt",), ("Sqrt",), numpy=on_floats(np.sqrt), tir="tvm.tirx:sqrt", vector_work=3, not_negative=True,
        rounding="once", shape_arithmetic="elementwise",
    ),
    _row(("relax.rsqrt",), numpy=on_floats(lambda x: 1.0 / np.sqrt(x)), tir="functions:rsqrt", vector_work=4),
    _gentle(("relax.tanh",), ("Tanh",), numpy=on_floats(np.tanh), tir="functions:tanh", vector_work=7),
    _gentle(("relax.erf",), ("Erf",), numpy=on_floats(evaluators.erf), tir="functions:erf", vector_work=12),
    _row(("relax.atanh",), ("Atanh",), tir="functions:atanh", vector_work=72),
    _row(("relax.sin",), ("Sin",), numpy=on_floats(np.sin), jump="angle"),
    _row(("relax.cos",), ("Cos",), numpy=on_floats(np.cos), jump="angle"),
    _row(("relax.tan",), ("Tan",), jump="angle"),
    *(_row((f"relax.{name}",), (name.capitalize(),)) for name in ("acos", "acosh", "asin", "asinh", "atan")),
    *(_row((f"relax.{name}",), (name.capitalize(),)) for name in ("sinh", "cosh")),
    _step(
        ("relax.sign",), ("Sign",), tir="functions:sign", shape_arithmetic="elementwise", idempotent=True,
    ),
    _exact(
        ("relax.floor",), ("Floor",), numpy=on_floats(np.floor), tir="tvm.tirx:floor", jump="whole",
        shape_arithmetic="elementwise", idempotent=True,
    ),
    _exact(
        ("relax.ceil",), ("Ceil",), numpy=on_floats(np.ceil), tir="tvm.tirx:ceil", jump="whole",
        shape_arithmetic="elementwise", idempotent=True,
    ),
    _exact(("relax.round",), ("Round",), jump="whole", shape_arithmetic="elementwise", idempotent=True),
    _exact(("relax.trunc",), numpy=on_floats(np.trunc), jump="whole"),
)  # fmt: skip

ACTIVATIONS = (
    _gentle(("relax.sigmoid",), ("Sigmoid",), numpy=on_floats(evaluators.sigmoid), tir="functions:sigmoid",
            vector_work=8),
    _gentle(
        ("relax.nn.relu",), ("Relu",), numpy=on_numbers(lambda x: np.maximum(x, x.dtype.type(0))),
        tir="functions:relu", not_negative=True, rounding="exact", shape_arithmetic="elementwise", int8="between",
        idempotent=True,
    ),
    _gentle(("relax.nn.silu",), ("Swish",), tir="functions:silu", vector_work=9),
    _gentle(("relax.nn.gelu",), ("Gelu",), tir="functions:gelu", vector_work=14),
    _gentle(("relax.nn.gelu_tanh",), tir="functions:gelu_tanh", vector_work=10),
    _row(
        ("relax.nn.softplus",), ("Softplus",), tir="functions:softplus", vector_work=16,
        attributes={"beta": float, "threshold": float},
    ),
    _gentle(("relax.clip",), ("Clip",), numpy=evaluators.clip, tir="functions:clip", rounding="exact", int8="between"),
    _gentle(
        ("relax.nn.leakyrelu",), ("LeakyRelu",), tir="functions:leakyrelu", attributes={"alpha": float},
        rounding="once", int8="between",
    ),
    _gentle(("relax.nn.prelu",), ("PRelu",), rows=row_rules.parameters_shared, rounding="once"),
    _gentle((), ("HardSigmoid",), rounding="twice"),
    _gentle((), ("HardSwish",)),
    _row(("relax.nn.selu",), ("Selu",)),
    _row((), ("ThresholdedRelu",), jump="step"),
    _row((), ("Shrink",), jump="step"),
    _exact(("relax.nn.dropout",), ("Dropout",)),
)  # fmt: skip

LOGIC = (
    _comparison(("relax.equal",), ("Equal",), numpy=plainly(np.equal), tir="strict_floats:equal"),
    _comparison(("relax.not_equal",), numpy=plainly(np.not_equal), tir="strict_floats:not_equal"),
    _comparison(("relax.less",), ("Less",), numpy=plainly(np.less), tir="tvm.tirx:LT"),
    _comparison(("relax.less_equal",), ("LessOrEqual",), numpy=plainly(np.less_equal), tir="tvm.tirx:LE"),
    _comparison(("relax.greater",), ("Greater",), numpy=plainly(np.greater), tir="tvm.tirx:GT"),
    _comparison(("relax.greater_equal",), ("GreaterOrEqual",), numpy=plainly(np.greater_equal), tir="tvm.tirx:GE"),
    _exact(
        ("relax.logical_and",), ("And",), numpy=plainly(np.logical_and), tir="tvm.tirx:all", types="logic",
        shape_arithmetic="elementwise",
    ),
    _exact(
        ("relax.logical_or",), ("Or",), numpy=plainly(np.logical_or), tir="strict_floats:logical_or", types="logic",
        shape_arithmetic="elementwise",
    ),
    _exact(
        ("relax.logical_xor",), ("Xor",), tir="functions:exclusive_or", types="logic", shape_arithmetic="elementwise"
    ),
    _exact(
        ("relax.logical_not",), ("Not",), numpy=plainly(np.logical_not), tir="strict_floats:logical_not",
        types="logic", shape_arithmetic="elementwise", involution=True,
    ),
    _gentle(
        ("relax.where",), ("Where",), numpy=plainly(np.where), tir="strict_floats:where", types="logic",
        rounding="exact", shape_arithmetic="elementwise",
    ),
    _step(("relax.isnan",), ("IsNaN",)),
    _step(("relax.isinf",), ("IsInf",)),
    _step(("relax.isfinite",)),
    *(_exact((f"relax.bitwise_{n}",), (f"Bitwise{n.capitalize()}",)) for n in ("and", "or", "xor", "not")),
    _exact(("relax.left_shift", "relax.right_shift"), ("BitShift",)),
)  # fmt: skip

CONVERSIONS = (
    _exact(
        ("relax.astype",), ("Cast", "CastLike"), numpy=evaluators.astype, tir="functions:cast", types="conversion",
        attributes={"dtype": str}, jump="step", own_type=True, shape_arithmetic="elementwise", idle=True,
    ),
    _row(
        ("relax.quantize",), ("QuantizeLinear",), numpy=evaluators.quantize, tir="functions:quantize",
        types="quantization", attributes={"out_dtype": str}, rows=row_rules.parameters_shared, jump="quantized",
    ),
    # no numpy: folded, the weights of a model of 8 bits would be floats
    _row(("relax.dequantize",), ("DequantizeLinear",), tir="functions:dequantize", types="quantization",
         rows=row_rules.parameters_shared),
    _row((), ("DynamicQuantizeLinear", "QLinearAdd", "QLinearMul", "QLinearLeakyRelu", "QLinearSigmoid"),
         jump="quantized"),
    _exact((), ("BitCast",), own_type=True),
)  # fmt: skip

ROWS = (*ARITHMETIC, *FUNCTIONS, *ACTIVATIONS, *LOGIC, *CONVERSIONS)
