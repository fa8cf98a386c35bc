"""Rebuilding statements: loops with other bodies, variables with expressions in their place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad
from tvm_ffi import DefRegionKind

from ....core.graph.nodes import nodes_of
from .affine import Arithmetic, variables_of

SERIAL, PARALLEL = tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL
COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def loop_like(loop: tirx.For, body: Any, **changed: Any) -> tirx.For:
    """A loop with another body, and with what is named by arguments of `tirx.For`."""
    own = {name: getattr(loop, name) for name in ("loop_var", "min", "extent", "kind", "annotations", "step")}
    return tirx.For(thread_binding=loop.thread_binding, body=body, **{**own, **changed})


def serial(var: Any, extent: Any, body: Any) -> tirx.For:
    """for var in range(extent): body"""
    return tirx.For(var, tirx.const(0, var.ty.dtype), extent, SERIAL, body)


def named(name: str, value: Any) -> tuple[Any, list[Any]]:
    """A variable of an integer, and the statements that give it its value, through memory: TVM's analyzer would put the
    value in the place of the variable, everywhere, and stumbles over what comes of it. LLVM keeps it in a register."""
    var = tirx.Var(name, value.ty.dtype)
    memory, at = tirx.decl_buffer((1,), value.ty.dtype, f"{name}_value", scope="local"), [tirx.const(0, "int32")]
    store = tirx.BufferStore(memory, value, at)
    return var, [tirx.AllocBuffer(memory), store, tirx.Bind(var, tirx.BufferLoad(memory, at))]


def is_kind(stmt: Any, *kinds: Any) -> bool:
    """Whether a statement is a loop of one of these kinds."""
    return isinstance(stmt, tirx.For) and int(stmt.kind) in [int(k) for k in kinds]


def sequence(*stmts: Any) -> Any:
    """Statements one after the other."""
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(list(stmts))


def children(stmt: Any) -> list[Any]:
    """The statements in a statement."""
    if isinstance(stmt, tirx.SeqStmt):
        return list(stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        return [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
    return [stmt.body] if hasattr(stmt, "body") else []


def descend(stmt: Any, change: Callable[[Any], Any]) -> Any:
    """A statement with those in it changed; itself where none is."""
    inside = children(stmt)
    new = [change(s) for s in inside]
    if all(after.same_as(other) for after, other in zip(new, inside, strict=True)):
        return stmt
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt(new)
    if isinstance(stmt, tirx.IfThenElse):
        return tirx.IfThenElse(stmt.condition, *new, *[None] * (2 - len(new)))
    if isinstance(stmt, tirx.For):
        return loop_like(stmt, *new)
    if isinstance(stmt, tirx.AttrStmt):
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, *new)
    return tirx.While(stmt.condition, *new)


def chain_of(loop: tirx.For) -> tuple[list[tirx.For], Any]:
    """A loop with the serial loops that are alone in one another, and what stands in the last."""
    loops, body = [loop], loop.body
    while is_kind(body, SERIAL):
        loops.append(body)
        body = body.body
    return loops, body


def in_chain(loops: Sequence[tirx.For], body: Any) -> Any:
    """The loops around a body: the reverse of :func:`chain_of`."""
    for loop in reversed(loops):
        body = loop_like(loop, body)
    return body


def replaced(body: Any, values: Mapping[Any, Any], arithmetic: Arithmetic) -> Any:
    """A body with expressions in the place of variables, and with its indices and comparisons simplified."""

    def variable(var: Any, kind: Any) -> Any:
        return values.get(var, var) if kind == DefRegionKind.NONE else var

    new = {v for value in values.values() for v in variables_of(value)}

    def simpler(expr: Any) -> Any:
        if isinstance(expr, tirx.Ramp):
            return tirx.Ramp(simpler(expr.base), expr.stride, expr.lanes)
        return arithmetic.simplify(expr) if _is_scalar(expr) and variables_of(expr) & new else expr

    def comparison(expr: Any) -> Any:
        return simpler(expr) if not reads(expr) else expr

    return with_indices(tvm_ffi.structural_map(body, with_def_region_kind=(Var, variable)), simpler, comparison)


def with_indices(body: Any, change: Callable[[Any], Any], compare: Callable[[Any], Any] | None = None) -> Any:
    """A body with its indices changed, and its comparisons of integers; without `compare` what these compare is."""

    def load(expr: Any) -> Any:
        return tirx.BufferLoad(expr.source, [change(i) for i in expr.indices])

    def store(stmt: Any) -> Any:
        return tirx.BufferStore(stmt.buffer, stmt.value, [change(i) for i in stmt.indices])

    def comparison(expr: Any) -> Any:
        if "int" not in str(expr.a.ty.dtype):
            return expr
        return compare(expr) if compare is not None else type(expr)(change(expr.a), change(expr.b))

    return tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store), (COMPARISONS, comparison)])


def _is_scalar(expr: Any) -> bool:
    return "x" not in str(expr.ty.dtype)


def reads(expr: Any) -> bool:
    """Whether an expression reads memory."""
    return bool(nodes_of(expr, TensorLoad))
