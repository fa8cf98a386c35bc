"""Data movement: operators whose results are elements of an operand, as they were."""

from typing import Any

from tvm import relax
from tvm.ir import TupleGetItem

from ...core.graph.relax_graph import op_name
from ...ops.table import of


def is_movement(value: Any) -> bool:
    """Whether an expression only moves elements, or picks some; what picks few of many rows does not count."""
    return of(op_name(value)).keeps_elements or isinstance(value, TupleGetItem)


def moved(value: Any) -> tuple[Any, ...]:
    """The tensors whose elements a movement takes."""
    if isinstance(value, TupleGetItem):
        return (value.tuple_value,)
    first = value.args[0]
    return tuple(first.fields) if isinstance(first, relax.Tuple) else (first,)
