"""Operators that compute each element of those at its place in the operands: arithmetic, functions, comparisons."""

import functools

import numpy as np

from .. import evaluators, row_rules
from ..evaluators import on_floats, on_integers, on_numbers, plainly
from ..operator import Kind, Operator

_row = functools.partial(Operator, kind=Kind.ELEMENTWISE)
_once = functools.partial(_row, rounding="once", shape_arithmetic="elementwise")
#: Results that are an operand, or no numbers.
_exact = functools.partial(_row, rounding="exact", shape_arithmetic="elementwise")
_whole = functools.partial(_exact, jump="whole", idempotent=True)
_step = functools.partial(_exact, jump="step")
_comparison = functools.partial(_step, types="comparison")
_logic = functools.partial(_exact, types="logic")

ARITHMETIC = (
    _once("relax.add Add", numpy=on_numbers(np.add), tir="strict_floats:plus", types="numbers", wraps=True,
          magnitude="sum", int8="between", neutral=0.0, non_expansive=True),
    _once("relax.subtract Sub", numpy=on_numbers(np.subtract), tir="strict_floats:minus", types="numbers", wraps=True,
          magnitude="sum", neutral=0.0, non_expansive=True),
    _once("relax.multiply Mul", numpy=on_numbers(np.multiply), tir="strict_floats:times", types="numbers", wraps=True,
          magnitude="factors", neutral=1.0, non_expansive=True),
    _once("relax.divide Div", numpy=evaluators.divide, tir="strict_floats:quotient", vector_work=2,
          magnitude="quotient", neutral=1.0),
    _exact("relax.maximum Max", numpy=on_numbers(np.maximum), tir="strict_floats:maximum", idle=True,
           non_expansive=True),
    _exact("relax.minimum Min", numpy=on_numbers(np.minimum), tir="strict_floats:minimum", idle=True,
           non_expansive=True),
    _row("relax.power Pow", numpy=on_numbers(np.power), tir="tvm.tirx:power", vector_work=72,
         shape_arithmetic="elementwise", neutral=1.0),
    _exact("relax.negative Neg", numpy=on_numbers(np.negative), tir="strict_floats:negative", types="numbers",
           wraps=True, involution=True, non_expansive=True),
    _exact("relax.abs Abs", numpy=on_numbers(np.abs), tir="functions:absolute", types="numbers", wraps=True,
           not_negative=True, idempotent=True, non_expansive=True),
    _once("Sum", magnitude="sum", idle=True, non_expansive=True),
    _row("Mean", idle=True, non_expansive=True),
    _once("Reciprocal", involution=True),
    _once("relax.mod Mod", numpy=on_integers(np.fmod), jump="step"),
    _row("relax.floor_mod", numpy=on_integers(np.mod), jump="step"),
    _row("relax.floor_divide", numpy=evaluators.floor_divide, jump="step"),
    _row("relax.square", numpy=on_numbers(np.square), not_negative=True),
    _row("relax.log_add_exp"),
)  # fmt: skip

FUNCTIONS = (
    _row("relax.exp Exp", numpy=on_floats(np.exp), tir="functions:exp", vector_work=7, not_negative=True),
    _row("relax.log Log", numpy=on_floats(np.log), tir="functions:log", vector_work=10),
    _once("relax.sqrt Sqrt", numpy=on_floats(np.sqrt), tir="tvm.tirx:sqrt", vector_work=3, not_negative=True),
    _row("relax.rsqrt", numpy=on_floats(lambda x: 1.0 / np.sqrt(x)), tir="functions:rsqrt", vector_work=4),
    _row("relax.tanh Tanh", numpy=on_floats(np.tanh), tir="functions:tanh", vector_work=7, non_expansive=True),
    _row("relax.erf Erf", numpy=on_floats(evaluators.erf), tir="functions:erf", vector_work=12, non_expansive=True),
    _row("relax.atanh Atanh", tir="functions:atanh", vector_work=72),
    _row("relax.sin Sin", numpy=on_floats(np.sin), jump="angle"),
    _row("relax.cos Cos", numpy=on_floats(np.cos), jump="angle"),
    _row("relax.tan Tan", jump="angle"),
    _row("relax.acos Acos relax.acosh Acosh relax.asin Asin relax.asinh Asinh relax.atan Atan"),
    _row("relax.sinh Sinh relax.cosh Cosh"),
    _step("relax.sign Sign", tir="functions:sign", idempotent=True),
    _whole("relax.floor Floor", numpy=on_floats(np.floor), tir="tvm.tirx:floor"),
    _whole("relax.ceil Ceil", numpy=on_floats(np.ceil), tir="tvm.tirx:ceil"),
    _whole("relax.round Round"),
    _whole("relax.trunc", numpy=on_floats(np.trunc)),
)

ACTIVATIONS = (
    _row("relax.sigmoid Sigmoid", numpy=on_floats(evaluators.sigmoid), tir="functions:sigmoid", vector_work=8,
         non_expansive=True),
    _exact("relax.nn.relu Relu", numpy=on_numbers(lambda x: np.maximum(x, x.dtype.type(0))), tir="functions:relu",
           not_negative=True, int8="between", idempotent=True, non_expansive=True),
    _row("relax.nn.silu Swish", composed="tvm_ext.ops.compositions:swish",
         numpy=on_floats(lambda x: x * evaluators.sigmoid(x)), tir="functions:silu", vector_work=9,
         non_expansive=True),
    _row("relax.nn.gelu Gelu", tir="functions:gelu", vector_work=14, non_expansive=True),
    _row("relax.nn.gelu_tanh", tir="functions:gelu_tanh", vector_work=10, non_expansive=True),
    _row("relax.nn.softplus Softplus", tir="functions:softplus", vector_work=16,
         attributes={"beta": float, "threshold": float}),
    _row("relax.clip Clip", numpy=evaluators.clip, tir="functions:clip", rounding="exact", int8="between",
         non_expansive=True),
    _row("relax.nn.leakyrelu LeakyRelu", tir="functions:leakyrelu", attributes={"alpha": float}, rounding="once",
         int8="between", non_expansive=True),
    _row("relax.nn.prelu PRelu", rows=row_rules.parameters_shared, rounding="once", non_expansive=True),
    _row("HardSigmoid", rounding="twice", non_expansive=True),
    _row("HardSwish", non_expansive=True),
    _row("relax.nn.selu Selu"),
    _row("ThresholdedRelu", jump="step"),
    _row("Shrink", jump="step"),
    _row("relax.nn.dropout Dropout", rounding="exact"),
)  # fmt: skip

LOGIC = (
    _comparison("relax.equal Equal", numpy=plainly(np.equal), tir="strict_floats:equal"),
    _comparison("relax.not_equal", numpy=plainly(np.not_equal), tir="strict_floats:not_equal"),
    _comparison("relax.less Less", numpy=plainly(np.less), tir="tvm.tirx:LT"),
    _comparison("relax.less_equal LessOrEqual", numpy=plainly(np.less_equal), tir="tvm.tirx:LE"),
    _comparison("relax.greater Greater", numpy=plainly(np.greater), tir="tvm.tirx:GT"),
    _comparison("relax.greater_equal GreaterOrEqual", numpy=plainly(np.greater_equal), tir="tvm.tirx:GE"),
    _logic("relax.logical_and And", numpy=plainly(np.logical_and), tir="tvm.tirx:all"),
    _logic("relax.logical_or Or", numpy=plainly(np.logical_or), tir="strict_floats:logical_or"),
    _logic("relax.logical_xor Xor", tir="functions:exclusive_or"),
    _logic("relax.logical_not Not", numpy=plainly(np.logical_not), tir="strict_floats:logical_not", involution=True),
    _logic("relax.where Where", numpy=plainly(np.where), tir="strict_floats:where", non_expansive=True),
    _step("relax.isnan IsNaN"),
    _step("relax.isinf IsInf"),
    _step("relax.isfinite"),
    _exact("relax.bitwise_and BitwiseAnd relax.bitwise_or BitwiseOr relax.bitwise_xor BitwiseXor"),
    _exact("relax.bitwise_not BitwiseNot"),
    _row("relax.left_shift relax.right_shift BitShift", rounding="exact"),
)

CONVERSIONS = (
    _exact("relax.astype Cast CastLike", numpy=evaluators.astype, tir="functions:cast", types="conversion",
           attributes={"dtype": str}, jump="step", own_type=True, idle=True),
    _row("relax.quantize QuantizeLinear", numpy=evaluators.quantize, tir="functions:quantize", types="quantization",
         attributes={"out_dtype": str}, rows=row_rules.parameters_shared, jump="quantized", int8="only"),
    # no numpy: folded, the weights of a model of 8 bits would be floats
    _row("relax.dequantize DequantizeLinear", tir="functions:dequantize", types="quantization",
         rows=row_rules.parameters_shared, int8="only"),
    _row("DynamicQuantizeLinear QLinearAdd QLinearMul QLinearLeakyRelu QLinearSigmoid QLinearWhere", jump="quantized",
         int8="only"),
    _row("BitCast", own_type=True, rounding="exact"),
)  # fmt: skip

ROWS = (*ARITHMETIC, *FUNCTIONS, *ACTIVATIONS, *LOGIC, *CONVERSIONS)
