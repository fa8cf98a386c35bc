"""How often an elementwise operator reads its operand, once every `let` is put in its place.

    let t = x * x + 1 in t * t   reads x four times

TVM's analyzer does put a definition in the place of its variable when it lowers to LLVM, so that an operator of an
operator of an operator takes time and memory in the product of these numbers. Grouping bounds that product.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from tvm import tirx

from ..table import of

_CHILDREN = ("a", "b", "true_value", "false_value", "value")
#: Reads of a condition: TVM's analyzer looks at it again for each of the two values, and at conditions within
#: conditions as often as that makes. Measured: compile time grows by this factor with each, and where the condition is
#: an operand, which no `let` names, it is twice as long.
_CONDITION, _OPERAND_AS_CONDITION = 6, 12
#: Attributes to look at an expression with.
_SAMPLES: Mapping[Any, Any] = {float: 0.5, int: 1, str: "int8"}


@functools.cache
def operand_reads(operator: str) -> tuple[int, ...]:
    """Reads of each operand of an elementwise operator on float32, 1 or more."""
    row = of(operator)
    parameters = [p for p in inspect.signature(row.scalar).parameters.values() if p.default is p.empty]
    attributes = {p.name: _SAMPLES[row.attributes[p.name]] for p in parameters if p.name in row.attributes}
    variadic = sum(p.kind is p.VAR_POSITIONAL for p in parameters)
    operands = [tirx.Var("x", "float32") for _ in range(len(parameters) + variadic - len(attributes))]
    expr = row.scalar(*(_truth(operator, i, x) for i, x in enumerate(operands)), **attributes)
    unnamed = _OPERAND_AS_CONDITION // _CONDITION if operator == "relax.where" else 1
    return tuple(max(1, (unnamed if i == 0 else 1) * _reads(expr, {x: 1})) for i, x in enumerate(operands))


def _truth(operator: str, index: int, x: Any) -> Any:
    """The operand, or a comparison with it where the operator takes a truth value."""
    takes_truth = operator.startswith("relax.logical") or (operator == "relax.where" and index == 0)
    return x > tirx.const(0.0, "float32") if takes_truth else x


def _reads(expr: Any, of: Mapping[Any, int]) -> int:
    """Reads in an expression; `of` says how many stand behind each variable."""
    if isinstance(expr, tirx.Let):
        return _reads(expr.body, {**of, expr.var: _reads(expr.value, of)})
    if isinstance(expr, tirx.Var):
        return of.get(expr, 0)
    children = [getattr(expr, name) for name in _CHILDREN if hasattr(expr, name)] + list(getattr(expr, "args", ()))
    values = sum(_reads(child, of) for child in children if hasattr(child, "ty"))
    return values + (_CONDITION * _reads(expr.condition, of) if isinstance(expr, tirx.Select) else 0)
