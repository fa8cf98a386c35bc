"""Which variables of a function are needed, and dropping those that a pass left behind."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax
from tvm.ir import Call, IRModule, Op, TupleGetItem

from ...core.graph.relax_graph import (
    Rewriter,
    bindings_of,
    dtype_of,
    op_name,
    remove_aliases,
    uses_of,
    with_body,
    with_main,
)
from ...core.passes import PassResult
from ...ops.operator import MOVING
from ...ops.table import of


def is_pure(expr: Any) -> bool:
    """Whether evaluating `expr` does nothing but produce its value (a call of a function counts as impure)."""
    if not isinstance(expr, Call):
        return not isinstance(expr, relax.If)
    return isinstance(expr.op, Op) and bool(expr.op.get_attr("FPurity"))


def live_variables(
    function: relax.Function, uses: Mapping[relax.Var, Sequence[relax.Var | None]] | None = None
) -> set[relax.Var]:
    """Variables that the function's result, or an effect it has, depends on.

    Args:
        uses: of its variables, where they are known.
    """
    uses = uses_of(function) if uses is None else uses
    live: set[relax.Var] = set()
    for block in function.body.blocks[::-1]:
        dataflow = isinstance(block, relax.DataflowBlock)
        for binding in block.bindings[::-1]:
            readers = uses.get(binding.var, ())
            effect = not dataflow and not is_pure(binding.value)
            if effect or isinstance(binding, relax.MatchCast) or any(r is None or r in live for r in readers):
                live.add(binding.var)
    return live


class Readers:
    """Who reads a variable, not counting what is dead itself."""

    def __init__(self, rw: Rewriter) -> None:
        self._uses, self._live = rw.uses, live_variables(rw.function, rw.uses)
        self._bound = dict(rw.defs)

    def of(self, var: relax.Var) -> list[relax.Var | None]:
        """Live readers of `var`, with repeats; None stands for the function's result."""
        return [r for r in self._uses.get(var, ()) if r is None or r in self._live]

    def sole(self, var: relax.Var) -> bool:
        """Whether `var` has a single reader; one that a rule emitted has the binding it was emitted for."""
        return var not in self._bound or len(self.of(var)) == 1

    def only(self, var: relax.Var, readers: Iterable[relax.Var]) -> bool:
        """Whether nothing live but these variables reads `var`."""
        allowed = set(readers)
        return all(r is not None and r in allowed for r in self.of(var))

    @functools.cached_property
    def tipping(self) -> set[relax.Var]:
        """Variables of which a rounding can tip a step, which is made of them through moves and what is elementwise.

        A step is a whole number, a truth value, or a place. A kernel of the importer may make one.
        """
        tipping: set[relax.Var] = set()
        for var, value in reversed(self._bound.items()):
            if _makes_steps(value) or (var in tipping and _hands_on(value)):
                tipping.update(operand for operand in _operands(value) if isinstance(operand, relax.Var))
        return tipping


def _makes_steps(value: Any) -> bool:
    name = op_name(value)
    if name == "relax.astype":
        return "float" not in dtype_of(value)
    return name == "relax.call_tir" or of(name).jump in ("whole", "quantized", "step")


def _hands_on(value: Any) -> bool:
    row = of(op_name(value))
    return not isinstance(value, Call) or row.is_elementwise or row.kind in MOVING or row.selects


def _operands(value: Any) -> Iterator[Any]:
    """What an expression reads, parts of tuples one by one."""
    if isinstance(value, relax.Tuple):
        yield from value.fields
    elif isinstance(value, Call):
        for operand in value.args:
            yield from _operands(operand)
    else:
        yield value.tuple_value if isinstance(value, TupleGetItem) else value


def without_leftovers(before: IRModule, result: PassResult) -> PassResult:
    """A result without those bindings of `main` that a pass made dead; what was dead before stays, to be reported."""
    if not result.modified:
        return result
    function = result.mod["main"]
    uses = uses_of(function)
    live = live_variables(function, uses)
    names = {b.var.name for b in bindings_of(before["main"])} - {v.name for v in live_variables(before["main"])}
    dropped: set[Any] = set()
    blocks = []
    for block in function.body.blocks[:]:
        kept = []
        for binding in block.bindings[:]:
            if binding.var in live or (binding.var.name in names and binding.var not in dropped):
                kept.append(binding)
            else:
                dropped.update(uses.get(binding.var, ()))  # who reads a dead variable is dead too
        blocks.append(type(block)(kept))
    new = with_main(result.mod, with_body(function, relax.SeqExpr(blocks, function.body.body)))
    return replace(result, mod=remove_aliases(new))  # which also types the new body
