"""How often an elementwise operator reads its operand, once every `let` is put in its place.

    let t = x * x + 1 in t * t   reads x four times

TVM's analyzer does put a definition in the place of its variable when it lowers to LLVM, and looks at the operands of a
sum or product of integers, and at what is cut to fewer bits, twice, so that an operator of an operator of an operator
takes time and memory in the product of these numbers. Grouping bounds that product.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx

from ..table import of
from .expressions import dtype_of

_CHILDREN = ("a", "b", "true_value", "false_value", "value")
#: Reads of a condition: TVM's analyzer looks at it again for each of the two values, and at conditions within
#: conditions as often as that makes. Measured: compile time grows by this factor with each, and where the condition is
#: an operand, which no `let` names, it is twice as long.
_CONDITION, _OPERAND_AS_CONDITION = 6, 12
#: Attributes to look at an expression with.
_SAMPLES: Mapping[Any, Any] = {float: 0.5, int: 1, str: "int8"}


_INTEGER_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)


@functools.cache
def operand_reads(operator: str, dtype: str = "float32", result: str = "float32") -> tuple[int, ...]:
    """Reads of each operand of an elementwise operator, 1 or more.

    Args:
        dtype: of the operands; all that are no integers count as float32.
        result: dtype; what is seen twice counts where integers come out, and may be looked at through one another.
    """
    row = of(operator)
    dtype = dtype if row.wraps and "int" in dtype else "float32"
    parameters = [p for p in inspect.signature(row.scalar).parameters.values() if p.default is p.empty]
    attributes = {p.name: _SAMPLES[row.attributes[p.name]] for p in parameters if p.name in row.attributes}
    variadic = sum(p.kind is p.VAR_POSITIONAL for p in parameters)
    operands = [tirx.Var("x", dtype) for _ in range(len(parameters) + variadic - len(attributes))]
    expr = row.scalar(*(_truth(operator, i, x) for i, x in enumerate(operands)), **attributes)
    unnamed = _OPERAND_AS_CONDITION // _CONDITION if operator == "relax.where" else 1
    reads = [_reads(expr, {x: 1}, "int" in result) for x in operands]
    return tuple(max(1, (unnamed if i == 0 else 1) * count) for i, count in enumerate(reads))


def _truth(operator: str, index: int, x: Any) -> Any:
    """The operand, or a comparison with it where the operator takes a truth value."""
    takes_truth = operator.startswith("relax.logical") or (operator == "relax.where" and index == 0)
    return x > tirx.const(0.0, "float32") if takes_truth else x


def _reads(expr: Any, of: Mapping[Any, int], twice: bool) -> int:
    """Reads in an expression; `of` says how many stand behind each variable.

    Args:
        twice: whether those of :func:`_is_seen_twice` count so.
    """
    if isinstance(expr, tirx.Let):
        return _reads(expr.body, {**of, expr.var: _reads(expr.value, of, twice)}, twice)
    if isinstance(expr, tirx.Var):
        return of.get(expr, 0)
    children = [getattr(expr, name) for name in _CHILDREN if hasattr(expr, name)] + list(getattr(expr, "args", ()))
    values = sum(_reads(child, of, twice) for child in children if hasattr(child, "ty"))
    values *= 2 if twice and _is_seen_twice(expr) else 1
    return values + (_CONDITION * _reads(expr.condition, of, twice) if isinstance(expr, tirx.Select) else 0)


def _is_seen_twice(expr: Any) -> bool:
    if isinstance(expr, tirx.Cast):
        before, after = dtype_of(expr.value), dtype_of(expr)
        return "int" in before and "int" in after and _bits(after) < _bits(before)
    return isinstance(expr, _INTEGER_ARITHMETIC) and "int" in dtype_of(expr)


def _bits(dtype: str) -> int:
    return int(tvm.DataType(dtype).bits)
