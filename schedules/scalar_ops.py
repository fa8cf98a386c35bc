"""Elementwise operators as scalar TIR: what may be fused behind an anchor, and how it is computed.

One table serves grouping (which operators are elementwise) and every recipe (what they compute).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call

Scalar = Callable[..., Any]
_SQRT_HALF, _SQRT_2_OVER_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi)


def _like(value: float, x: Any) -> Any:
    return tirx.const(value, str(x.ty.dtype) if hasattr(x, "ty") else x.dtype)


def _sigmoid(x: Any) -> Any:
    return _like(1.0, x) / (_like(1.0, x) + tirx.exp(-x))


def _gelu_tanh(x: Any) -> Any:
    inner = _like(_SQRT_2_OVER_PI, x) * (x + _like(0.044715, x) * x * x * x)
    return _like(0.5, x) * x * (_like(1.0, x) + tirx.tanh(inner))


# The order of operands matters: a comparison with NaN is false, so these let NaN through, as onnxruntime does, and LLVM
# still makes one instruction of each.
def _relu(x: Any) -> Any:
    return tirx.Select(x < _like(0, x), _like(0, x), x)


def _clip(x: Any, low: Any, high: Any) -> Any:
    x = tirx.Select(x < low, low, x)
    return tirx.Select(x > high, high, x)


def _maximum(a: Any, b: Any) -> Any:
    return tirx.Select(tirx.any(tirx.isnan(a), a > b), a, b)


def _minimum(a: Any, b: Any) -> Any:
    return tirx.Select(tirx.any(tirx.isnan(a), a < b), a, b)


#: Relax operator -> scalar expression of its tensor operands (attributes by keyword where there are any).
SCALAR_OPS: dict[str, Scalar] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
    "relax.divide": lambda a, b: a / b,
    "relax.maximum": _maximum,
    "relax.minimum": _minimum,
    "relax.power": tirx.power,
    "relax.negative": lambda x: -x,
    "relax.abs": tirx.abs,
    "relax.exp": tirx.exp,
    "relax.log": tirx.log,
    "relax.sqrt": tirx.sqrt,
    "relax.rsqrt": lambda x: _like(1.0, x) / tirx.sqrt(x),
    "relax.tanh": tirx.tanh,
    "relax.erf": tirx.erf,
    "relax.floor": tirx.floor,
    "relax.ceil": tirx.ceil,
    "relax.sigmoid": _sigmoid,
    "relax.nn.relu": _relu,
    "relax.nn.silu": lambda x: x * _sigmoid(x),
    "relax.nn.gelu": lambda x: _like(0.5, x) * x * (_like(1.0, x) + tirx.erf(x * _like(_SQRT_HALF, x))),
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.clip": _clip,
    "relax.nn.leakyrelu": lambda x, alpha: tirx.Select(x > _like(0, x), x, x * _like(alpha, x)),
}

_ATTRIBUTES = {"relax.nn.leakyrelu": ("alpha",)}


def scalar_call(call: Call, operands: list[Any]) -> Any:
    """The scalar expression of an elementwise operator call on scalar operands."""
    name = str(call.op.name)
    attributes = {a: float(getattr(call.attrs, a)) for a in _ATTRIBUTES.get(name, ())}
    return SCALAR_OPS[name](*operands, **attributes)


def is_elementwise(name: str) -> bool:
    """Whether an operator can be fused as part of an epilogue or an elementwise kernel."""
    return name in SCALAR_OPS
