"""Divisions of integers by what may be 0: no input, and no branch that is computed and not taken, may end the process.

    a / b   ->   b == 0 ? 0 : b == -1 ? -a : a / b

On x86 a division by 0, and one of the least integer by -1, is a signal. ONNX defines neither; numpy gives 0 for
the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of
from ...ops.scalars import strict_floats
from .base import Attributes, broadcast, converts, kernel, stock


@converts("Div")
def div(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Div of integers, towards 0, by computed divisors that may be 0: the quotient is 0 there. The rest is stock.

    Which refuses a constant that is 0.
    """
    x, y = inputs[0], inputs[1]
    if not may_trap(x, y) or (isinstance(y, GenericConst) and not y.value.numpy().all()):
        return stock("Div", inputs, attributes, opset)
    dtype = dtype_of(x)
    return kernel(lambda a, b: broadcast(lambda n, d: _quotient(n, d, dtype), a, b), x, y, name="divide")


def remainder(x: Any, y: Any, truncated: bool) -> Any:
    """The remainder of integers by divisors that may be 0, where it is 0.

    Args:
        truncated: whether it has the sign of x, not that of y.
    """
    function, dtype = tirx.truncmod if truncated else tirx.floormod, dtype_of(x)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)

    def value(n: Any, d: Any) -> Any:
        trivial = d == zero if dtype.startswith("uint") else tirx.any(d == zero, d == tirx.const(-1, dtype))
        return tirx.Select(trivial, zero, function(n, tirx.Select(trivial, one, d)))

    return kernel(lambda a, b: broadcast(value, a, b), x, y, name="mod")


def _quotient(n: Any, d: Any, dtype: str) -> Any:
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("uint"):
        return tirx.Select(d == zero, zero, tirx.truncdiv(n, tirx.Select(d == zero, one, d)))
    minus = d == tirx.const(-1, dtype)
    quotient = tirx.truncdiv(n, tirx.Select(tirx.any(d == zero, minus), one, d))
    return tirx.Select(d == zero, zero, tirx.Select(minus, strict_floats.negative(n), quotient))


def may_trap(x: Any, y: Any) -> bool:
    """Whether x and y are integers, and y is no constant without 0 and -1."""
    if not (_is_integer(x) and _is_integer(y)):
        return False
    return not isinstance(y, GenericConst) or bool(np.isin(y.value.numpy().astype(object), (0, -1)).any())


def _is_integer(x: Any) -> bool:
    return isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType) and "int" in dtype_of(x)
