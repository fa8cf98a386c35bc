"""How often an elementwise operator reads its operand, once every `let` is put in its place.

    let t = x * x + 1 in t * t   reads x four times

TVM's analyzer does put a definition in the place of its variable when it lowers to LLVM, so that an operator of an
operator of an operator takes time and memory in the product of these numbers. Grouping bounds that product.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from tvm import tirx

from .scalar_ops import SCALAR_OPS

_CHILDREN = ("a", "b", "condition", "true_value", "false_value", "value")


#: Operators whose first operand is a condition. TVM's analyzer looks at it again for each of the two
#: values, and at conditions within conditions as often as that makes: a chain of ten takes seconds.
_CONDITIONS = {"relax.logical_xor": 3, "relax.where": 3}


@functools.cache
def operand_reads(operator: str) -> int:
    """Reads of the first operand of a float32 elementwise operator, 1 or more."""
    if operator in _CONDITIONS:
        return _CONDITIONS[operator]
    if (scalar := SCALAR_OPS.get(operator)) is None:
        return 1  # a comparison or the like: no expression of its own
    names = [p.name for p in inspect.signature(scalar).parameters.values() if p.default is p.empty]
    attributes = {name: _ATTRIBUTES[name] for name in names if name in _ATTRIBUTES}
    others = [tirx.const(0.5 * i, "float32") for i in range(1, len(names) - len(attributes))]
    x = tirx.Var("x", "float32")
    return max(1, _reads(scalar(x, *others, **attributes), {x: 1}))


_ATTRIBUTES: Mapping[str, Any] = {"alpha": 0.5, "dtype": "int32"}


def _reads(expr: Any, of: Mapping[Any, int]) -> int:
    """Reads in an expression; `of` says how many stand behind each variable."""
    if isinstance(expr, tirx.Let):
        return _reads(expr.body, {**of, expr.var: _reads(expr.value, of)})
    if isinstance(expr, tirx.Var):
        return of.get(expr, 0)
    children = [getattr(expr, name) for name in _CHILDREN if hasattr(expr, name)] + list(getattr(expr, "args", ()))
    return sum(_reads(child, of) for child in children if hasattr(child, "ty"))
