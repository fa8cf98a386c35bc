"""What kernels refuse is asked before any state changes, so that a refused step leaves all of them as they were.

    a = append(past_a, ...); b = append(past_b, ...)   ->   check(b's lengths); a = append(...); b = append(...)

A kernel that may refuse asks before it writes. Behind another that writes a state, it would ask too late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import StringImm, Var

from ...core.graph.nodes import nodes_of
from ...core.graph.relax_graph import Rewriter, bindings_of, op_name, shape_of
from ...core.group import RECIPE
from ...core.sizes import EXTENTS, SYMBOLS
from ...runtime.memory.cache_lengths import REFUSALS


@dataclass(frozen=True)
class Check:
    """A kernel that raises an InputError, or does nothing, and what it reads."""

    kernel: tirx.PrimFunc
    operands: tuple[Any, ...]

    def asks_as(self, other: Check) -> bool:
        """Whether both refuse the same."""
        alike = len(self.operands) == len(other.operands) and all(map(_same, self.operands, other.operands))
        return alike and bool(tvm_ffi.structural_equal(self.kernel, other.kernel))

    def emitted(self, rw: Rewriter) -> None:
        """Call it before the current binding."""
        shapes = (tuple(map(int, param.ty.shape)) for param in self.kernel.params)
        pairs = zip(self.operands, shapes, strict=False)
        operands = [x if shape_of(x) == shape else rw.emit(relax.op.reshape(x, shape)) for x, shape in pairs]
        rw.emit(relax.call_tir(rw.add_function(self.kernel, "check"), operands, relax.TensorType((1,), "int8")))


def checks_before(
    rewriter: Rewriter, changed: Sequence[relax.Var], roots: Mapping[Any, Any]
) -> tuple[list[Check], relax.Var | None]:
    """What is to be asked before the first of some calls, and was not yet.

    Args:
        rewriter: of the module.
        changed: results of the calls that change a state where it lies, in the order of `main`.
        roots: variable -> the one behind other names and shapes of it.

    Returns:
        The checks; and the result of a call that refuses by what is known only behind the first of them; None without.
    """
    known: list[Check] = []
    asked: list[Check] = []
    there, late = {*rewriter.function.params}, False
    for binding in bindings_of(rewriter.function):
        check = _check_of(rewriter, binding.value, roots)
        late = late or (bool(changed) and binding.var.same_as(changed[0]))
        if check is not None and not any(check.asks_as(other) for other in known):
            if late and not binding.var.same_as(changed[0]):
                if not {*check.operands} <= there:
                    return [], binding.var
                asked.append(check)
            known.append(check)
        if not late:
            there.add(binding.var)
    return asked, None


def _check_of(rewriter: Rewriter, call: Any, roots: Mapping[Any, Any]) -> Check | None:
    """The check that a call of a kernel makes; None if it refuses nothing."""
    kernel = rewriter.mod[call.args[0]] if op_name(call) == "relax.call_tir" else None
    if not isinstance(kernel, tirx.PrimFunc) or not _refuses(kernel.body):
        return None
    kept = [inner for loop in nodes_of(kernel.body, tirx.For) if _refuses(loop) for inner in nodes_of(loop, tirx.For)]
    assert kept, "a kernel refuses outside of a loop, which is not asked before others write"
    without = (tirx.For, lambda loop: loop if any(loop.same_as(inner) for inner in kept) else tirx.Evaluate(0))
    body = tvm_ffi.structural_map(kernel.body, without, order="pre")
    read = {*nodes_of(body, Var)}
    places = [number for number, param in enumerate(kernel.params[:-1]) if param in read]
    params = [*(kernel.params[place] for place in places), tirx.decl_buffer((1,), "int8", "out")]
    check = tirx.PrimFunc(params, body, kernel.ret_type, kernel.attrs)
    for name in (EXTENTS, SYMBOLS, RECIPE):
        check = check.without_attr(name)
    operands = call.args[1].fields
    return Check(check, tuple(roots.get(operands[place], operands[place]) for place in places))


def _refuses(statement: Any) -> bool:
    return any(text.value in REFUSALS for text in nodes_of(statement, StringImm))


def _same(first: Any, other: Any) -> bool:
    return bool(first.same_as(other))
