"""Elementwise operators that are in no recipe's kernel, by the same expressions as those that are.

    y = R.multiply(x, c)      # float16   ->   y[i] = float16(float32(x[i]) * float32(c))

TVM's own operators take floats for real numbers as soon as they are made (0 / x is 0), have float16 and bfloat16
functions of that accuracy within, and convert what does not fit to what LLVM happens to make of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Call, Op
from tvm.tirx import FloatImm, IntImm

from tvm_ext.core.graph.relax_graph import dtype_of, op_name, scalar_of, shape_of
from tvm_ext.core.numbers.precision import NARROW_FLOATS

from ..table import of, operators
from .functions import cast
from .operators import scalar_call

_FLOATS = (*sorted(NARROW_FLOATS), "float32", "float64")
_PLAIN = (*_FLOATS, "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))

#: Integers whose arithmetic TVM takes for that of whole numbers.
_WRAPPING = ("int32", "uint32", "int64", "uint64")

Legalization = Callable[[relax.BlockBuilder, Call], relax.Expr]


def legalizations() -> dict[str, Legalization]:
    """Relax operator -> how it becomes a kernel: by its scalar expression where it has one, else as TVM does it."""
    ours = (row for row in operators() if row.is_elementwise and row.types not in ("logic", "quantization"))
    return dict.fromkeys((name for row in ours for name in row.relax), _legalized)


def _legalized(builder: relax.BlockBuilder, call: Call) -> relax.Expr:
    operands = [a for a in call.args if not isinstance(a, FloatImm | IntImm)]
    if shape_of(call) is None or not _is_ours(op_name(call), [dtype_of(a) for a in operands], dtype_of(call)):
        return Op.get(op_name(call)).get_attr("FLegalize")(builder, call)
    tensors = [a for a in operands if scalar_of(a) is None or shape_of(a) != ()]
    if not tensors:  # a number of numbers
        tensors = operands[:1]
    name = op_name(call).rpartition(".")[2]
    return builder.call_te(lambda *t: _computed(call, tensors, t), *tensors, primfunc_name_hint=f"tir_{name}")


def _is_ours(name: str, operands: Sequence[str], result: str) -> bool:
    if name == "relax.astype":
        return {*operands, result} <= {*_PLAIN}
    if of(name).types == "comparison":
        return {*operands} <= {*_FLOATS, "bool"}
    return len({*operands, result}) == 1 and result in (*_FLOATS, *(_WRAPPING if of(name).wraps else ()))


def _computed(call: Call, tensors: Sequence[Any], values: Sequence[te.Tensor]) -> te.Tensor:
    """The operator on whole tensors; narrow floats are computed in float32 and rounded once."""
    shape, result = shape_of(call) or (), dtype_of(call)
    narrow = op_name(call) != "relax.astype"

    def operand(expr: Any, index: Sequence[Any]) -> Any:
        number = expr.value if isinstance(expr, FloatImm | IntImm) else scalar_of(expr)
        kind = result if isinstance(expr, FloatImm | IntImm) else dtype_of(expr)
        wide = "float32" if narrow and kind in NARROW_FLOATS else kind
        for tensor, value in zip(tensors, values, strict=True):
            if expr.same_as(tensor):
                return cast(value(*_broadcast(value, index)), wide)
        return tirx.const(number, wide)

    def element(*index: Any) -> Any:
        return cast(scalar_call(call, [operand(a, index) for a in call.args]), result)

    return te.compute(shape, element, name="out")


def _broadcast(tensor: te.Tensor, index: Sequence[Any]) -> list[Any]:
    own = [int(d) for d in tensor.shape]
    tail = index[len(index) - len(own) :]
    return [np.int32(0) if d == 1 else i for d, i in zip(own, tail, strict=True)]
