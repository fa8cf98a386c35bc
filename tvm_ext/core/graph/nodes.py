"""Nodes of a type below an expression, a statement or a function; kernels of a module."""

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import IRModule, tirx
from tvm.ir import Var


def nodes_of(node: Any, kind: Any) -> list[Any]:
    """A node and all below it that are of a type, or of one of a tuple of types; operands first, with repeats."""
    return nodes_by_kind(node, kind)[0]


def nodes_by_kind(node: Any, *kinds: Any) -> tuple[list[Any], ...]:
    """:func:`nodes_of` for several kinds in one walk; a list for each."""
    lists: tuple[list[Any], ...] = tuple([] for _ in kinds)
    tvm_ffi.structural_walk(node, [(kind, nodes.append) for kind, nodes in zip(kinds, lists, strict=True)])
    return lists


def substituted(node: Any, by: Mapping[Any, Any]) -> Any:
    """An expression or statement with what `by` has for a variable in the place of that variable."""
    return tvm_ffi.structural_map(node, (Var, lambda var: by.get(var, var)))


def mentions(node: Any, var: Any) -> bool:
    """Whether an expression or statement has a variable of TIR in it."""
    return any(other.same_as(var) for other in nodes_of(node, Var))


def kernels_of(mod: IRModule) -> dict[str, tirx.PrimFunc]:
    """The kernels of a module, by name."""
    return {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
