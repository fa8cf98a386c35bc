"""Small helpers for scalar TIR expressions: constants of the right type, and values bound to a name.

TIR takes an expression as a tree: an operand that is read twice stands in it twice. `let` names a value instead, which
machine code then computes once (how large it is for TVM's analyzer: :mod:`.expression_size`):

    let(x * x + 1, lambda t: t * t)   ->   let t = x * x + 1 in t * t

Each call makes a variable of its own, because TIR allows one definition of a variable.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx


def dtype_of(x: Any) -> str:
    """The type of a scalar expression, or of a plain number."""
    if hasattr(x, "ty"):
        return str(x.ty.dtype)
    return str(x.dtype) if hasattr(x, "dtype") else "float32" if isinstance(x, float) else "int32"


def like(value: float, x: Any) -> Any:
    """A constant of the type of `x`."""
    return tirx.const(value, dtype_of(x))


def let(value: Any, body: Callable[[Any], Any]) -> Any:
    """`body` of a variable that stands for `value`, which is computed once.

    A truth value stands as 1.0 or 0.0: TVM's analyzer of integers, which looks into every definition of one, takes no
    vector of truth values. LLVM makes the comparison itself of it again.
    """
    if isinstance(value, tirx.Var | tirx.IntImm | tirx.FloatImm):
        return body(value)
    if dtype_of(value) == "bool":
        number = tirx.Select(value, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"))
        return let(number, lambda number: body(number > tirx.const(0.0, "float32")))
    var = tirx.Var("t", dtype_of(value))
    return tirx.Let(var, value, body(var))
