"""Sums of float16 and bfloat16 numbers are made in float32 and rounded once, as onnxruntime does.

    y = MatMul(a, b)   ->   y = float16(MatMul(float32(a), float32(b)))

TVM would round after every addition, to 11 bits or to 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from ...core.relax_graph import dtype_of

_NARROW = ("float16", "bfloat16")
#: Operators that sum.
SUMS = frozenset(
    ["AveragePool", "Col2Im", "Conv", "ConvTranspose", "CumSum", "DeformConv", "Einsum", "GRU", "Gemm"]
    + ["GlobalAveragePool", "GlobalLpPool", "GroupNormalization", "InstanceNormalization", "LRN", "LSTM", "LogSoftmax"]
    + ["LpNormalization", "LpPool", "MatMul", "Mean", "MeanVarianceNormalization", "RMSNormalization", "RNN"]
    + ["ReduceL1", "ReduceL2", "ReduceLogSum"]
    + ["ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax", "Sum"]
)
#: Operators with attributes of float32, which may be infinite as a narrower number.
_SCALED = frozenset(["Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "Shrink", "ThresholdedRelu"])
#: Functions that LLVM has for wider floats only.
_WIDE_ONLY = frozenset(["Acos", "Acosh", "Asin", "Asinh", "Atan", "Cosh", "Sinh"])
#: Operators of which TVM makes no bfloat16 kernel, or a wrong one.
_NO_BFLOAT16 = frozenset(["ArgMax", "ArgMin", "Clip", "Hardmax", "IsNaN", "MaxPool", "Mod"])


def in_float32(op_type: str, inputs: Any, convert: Callable[[Any], Any]) -> Any:
    """What `convert` makes of the inputs, in float32 where narrower floats are summed or scaled, or have no such form.

    Args:
        op_type: the operator.
        inputs: the importer's list of inputs.
        convert: takes inputs, and returns an expression or a tuple of them.
    """
    kinds = {dtype_of(x) for x in inputs if _is_tensor(x)} & set(_NARROW)
    lacking = _NO_BFLOAT16 if "bfloat16" in kinds else frozenset()
    if op_type not in SUMS | _SCALED | _WIDE_ONLY | lacking or len(kinds) != 1:
        return convert(inputs)
    (narrow,) = kinds
    wide = type(inputs)()
    builder = relax.BlockBuilder.current()
    for x in inputs:
        cast = _is_tensor(x) and dtype_of(x) == narrow
        wide.append(builder.normalize(relax.op.astype(x, "float32")) if cast else x)
    result = builder.normalize(convert(wide))
    if isinstance(result, relax.Tuple):
        return relax.Tuple(_rounded(list(result.fields), narrow))
    return _rounded([result], narrow)[0]


def _is_tensor(x: Any) -> bool:
    return isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType)


def _rounded(results: Sequence[Any], narrow: str) -> list[Any]:
    return [relax.op.astype(r, narrow) if dtype_of(r) == "float32" else r for r in results]
