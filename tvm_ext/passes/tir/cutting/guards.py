"""What memory beyond the extents must not decide: where a kernel reads, and by what it divides.

    y[i] = table[at[i]]            ->   if i < N: y[i] = table[at[i]]
    y[i] = a[i] // b[i]            ->   if i < N: y[i] = a[i] // b[i]             of integers: a zero ends the process

An index that stays inside its buffer whatever is read, such as at[i] % rows, needs no guard.
"""

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

from ....core.graph.nodes import nodes_of
from .affine import Arithmetic, Extents, variables_of

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def guarded(body: Any, extents: Extents, arithmetic: Arithmetic) -> Any:
    """A body whose stores read foreign memory, or divide by it, only inside the extents.

    Raises:
        ValueError: what the kernel's own buffer holds is read at indices of its own, of which there are no extents.
    """

    def store(stmt: Any) -> Any:
        conditions: list[Any] = []
        for load in _deciding([stmt.value, *stmt.indices], arithmetic):
            place = load if load.source in extents else stmt
            buffer = load.source if load.source in extents else stmt.buffer
            if buffer not in extents:
                raise ValueError(
                    f"what {stmt.buffer.name!r} holds is read at indices of the kernel's own buffer "
                    f"{load.source.name!r}, whose sizes at run time are not known: read them from a parameter"
                )
            for index, extent in zip(place.indices, extents[buffer], strict=True):
                if extent is not None and not _among(index < extent, conditions):
                    conditions.append(index < extent)
        return tirx.IfThenElse(tirx.all(*conditions), stmt, None) if conditions else stmt

    return tvm_ffi.structural_map(body, (tirx.BufferStore, store))


def _among(value: Any, others: Sequence[Any]) -> bool:
    return any(tvm_ffi.structural_equal(value, other) for other in others)


def _deciding(exprs: Sequence[Any], arithmetic: Arithmetic) -> list[Any]:
    """The loads in indices that may leave their buffer, and in divisors of integers."""
    loads: list[Any] = []
    names: dict[Any, Any] = {}

    def let(node: Any) -> None:
        names[node.var] = node.value

    def load(node: TensorLoad) -> None:
        for index, size in zip(node.indices, node.source.ty.shape, strict=True):
            inner = _loads(index, names)
            if inner and not _inside(index, size, arithmetic):
                loads.extend(inner)

    def division(node: Any) -> None:
        if "int" in str(node.a.ty.dtype) and not isinstance(node.b, tirx.IntImm):
            loads.extend(_loads(node.b, names))

    for expr in exprs:
        tvm_ffi.structural_walk(expr, (tirx.Let, let))
        tvm_ffi.structural_walk(expr, [(TensorLoad, load), (_DIVISIONS, division)])
    return loads


def _inside(index: Any, size: Any, arithmetic: Arithmetic) -> bool:
    bound = arithmetic.analyzer.const_int_bound(index)
    return isinstance(size, tirx.IntImm) and bound.min_value >= 0 and bound.max_value < int(size)


def _loads(expr: Any, names: dict[Any, Any]) -> list[Any]:
    """The loads in an expression, and in what its variables stand for."""
    loads = nodes_of(expr, TensorLoad)
    for var in variables_of(expr):
        if isinstance(var, Var) and var in names:
            loads.extend(_loads(names[var], names))
    return loads
