"""States that a kernel changes in part are updated in place: a step with a cache writes a row, and not the cache.

    present = call_tir(scatter, (past, row, new)), which returns to past   ->   present = call_tir(scatter, (row, new))

The memory of such an output holds the input's values before the call: the caller sees to it, by a copy, or because it
is the input's own memory, which no kernel reads any more then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GlobalVar, IRModule

from ...core.cost.work import bytes_of
from ...core.graph.nodes import nodes_of
from ...core.graph.relax_graph import Rewriter, bindings_of, dtype_of, op_name, shape_of
from ...core.passes import CompileContext, Pass, PassResult
from ...runtime.memory.arrays import zero_copy
from ..tir.partial_stores import without_copy
from .refusals import Check, checks_before


@dataclass(frozen=True)
class Updates:
    """The outputs whose memory holds an input's values before the call.

    Attributes:
        pairs: (output, input) of each.
        nbytes: kernel that updates -> bytes that a call of it moves at most: its other operands, and as many written.
    """

    pairs: tuple[tuple[int, int], ...] = ()
    nbytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Update:
    """A call that makes the new value of a state of the old one.

    Attributes:
        pair: the numbers of the output and of the input.
        data: number of the operand that is the old value.
    """

    pair: tuple[int, int]
    call: Any
    data: int

    @property
    def grows(self) -> bool:
        """Whether the new value is longer than the old one, which then stays as it is."""
        return bool(shape_of(self.call) != shape_of(self.call.args[1].fields[self.data]))

    @property
    def others(self) -> list[Any]:
        """The other operands."""
        return [operand for number, operand in enumerate(self.call.args[1].fields) if number != self.data]

    @property
    def nbytes(self) -> int:
        """Bytes that the call moves at most."""
        return 2 * sum(map(bytes_of, self.others))


class UpdateStates(Pass):
    """Kernels that change a part of a state write it where the state lies."""

    name = "update-states"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rewriter = Rewriter(mod, ctx)
        updates = dict(_updates(rewriter, ctx))
        kernels = _kernels(rewriter, updates)
        updates = {var: update for var, update in updates.items() if update.call.args[0] in kernels}
        checks, first = _checked(rewriter, updates)
        replaced: dict[GlobalVar, GlobalVar] = {}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            if binding.var.same_as(first):
                for check in checks:
                    check.emitted(rw)
            if (update := updates.get(binding.var)) is None:
                return None
            old = update.call.args[0]
            if old not in replaced:
                replaced[old] = rw.replace_function(old, kernels[old])
            rw.fire("its kernel writes only what changes, in the memory of the state")
            rest = [replaced[old], relax.Tuple(update.others), *update.call.args[2:]]
            return Call(update.call.op, rest, update.call.attrs, update.call.ty_args)

        result = rewriter.rewrite(visit)
        nbytes = {update.call.args[0].name_hint: update.nbytes for update in updates.values()}
        facts = Updates(tuple(sorted(update.pair for update in updates.values())), nbytes)
        return PassResult(result.mod, result.fired, result.skipped, (facts,))


def _updates(rewriter: Rewriter, ctx: CompileContext) -> Iterator[tuple[relax.Var, _Update]]:
    """Variable -> the call behind it, for each state whose old value is not needed after that call."""
    function, values = rewriter.function, rewriter.defs
    results, readers = results_of(function.body.body, values), _readers(function, values)
    taken: set[Any] = set()
    for output, number in ctx.states:
        past, root = function.params[number], root_of(results[output], values)
        call: Any = values.get(root)
        if op_name(call) != "relax.call_tir" or root in taken or isinstance(call.ty, relax.TupleType):
            rewriter.skip("no kernel makes it alone", str(past.name))
            continue
        operands = [root_of(operand, values) for operand in call.args[1].fields]
        if sum(operand.same_as(past) for operand in operands) != 1 or not can_lend(past):
            rewriter.skip("its kernel makes a whole new value", str(past.name))
        elif (last := readers[past][-1]) != root.name:
            rewriter.skip(f"{last} reads the old value after the new one is there", str(past.name))
        elif shape_of(past) != shape_of(root) and len(readers[past]) > 1:
            rewriter.skip(f"{readers[past][0]} reads what lies only where a longer value begins", str(past.name))
        else:
            taken.add(root)
            yield root, _Update((output, number), call, next(i for i, x in enumerate(operands) if x.same_as(past)))


def _readers(function: relax.Function, values: dict[Any, Any]) -> dict[relax.Var, list[str]]:
    """Parameter -> the names of what is made of its values, in order; "the result" is the last if it is one.

    The new value of a state is the last where nothing reads the old one later: `main` runs in order. It is the only one
    where the new value is longer: then the old one is the beginning of its memory, and in no array of its own.
    """
    readers: dict[relax.Var, list[str]] = {}
    params = set(function.params)
    for binding in bindings_of(function):
        if root_of(binding.var, values).same_as(binding.var):  # another name or shape is no reader
            for root in dict.fromkeys(root_of(var, values) for var in nodes_of(binding.value, relax.Var)):
                readers.setdefault(root, []).append(str(binding.var.name))
    for root in (root_of(var, values) for var in results_of(function.body.body, values)):
        readers.setdefault(root, []).append("the result")
    return {param: names for param, names in readers.items() if param in params}


def _checked(rewriter: Rewriter, updates: dict[relax.Var, _Update]) -> tuple[list[Check], relax.Var | None]:
    """What is to be asked before a variable, the first whose kernel changes a state where it lies.

    Updates in front of a kernel that refuses by what is known only later are taken out.
    """
    order = [binding.var for binding in bindings_of(rewriter.function)]
    roots = {var: root_of(var, rewriter.defs) for var in order}
    changed = [var for var in order if var in updates and not updates[var].grows]
    checks, late = checks_before(rewriter, changed, roots)
    while late is not None:
        place = next(number for number, var in enumerate(order) if var.same_as(late))
        for var in [earlier for earlier in order[:place] if earlier in changed]:
            rewriter.skip("a kernel that may refuse an input would leave it changed", str(var.name))
            changed.remove(var)
            del updates[var]
        checks, late = checks_before(rewriter, changed, roots)
    return checks, changed[0] if changed else None


def _kernels(rewriter: Rewriter, updates: dict[relax.Var, _Update]) -> dict[GlobalVar, Any]:
    """Kernel -> what it becomes, for those that do nothing but update states, and only a part of them."""
    places: dict[GlobalVar, set[int]] = {}  # the number of the old value in each call; -1 where there is none
    for var, value in rewriter.defs.items():
        if op_name(value) == "relax.call_tir":
            places.setdefault(value.args[0], set()).add(updates[var].data if var in updates else -1)
    kernels: dict[GlobalVar, Any] = {}
    for var, update in updates.items():
        gvar = update.call.args[0]
        alike = places[gvar] == {update.data}
        if gvar not in kernels and alike:
            kernels[gvar] = without_copy(rewriter.mod[gvar], update.data)
        if kernels.get(gvar) is None:
            why = "its kernel makes a whole new value" if alike else f"{gvar.name_hint} also runs on what is no state"
            rewriter.skip(why, var)
    return {gvar: kernel for gvar, kernel in kernels.items() if kernel is not None}


def can_lend(var: relax.Var) -> bool:
    """Whether numpy can lend the memory of a tensor to a program."""
    try:
        return zero_copy(np.dtype(dtype_of(var)), shape_of(var) or ()) and shape_of(var) is not None
    except TypeError:  # bfloat16 and the like
        return False


def results_of(result: Any, values: dict[Any, Any]) -> list[Any]:
    """The outputs of a function.

    Args:
        result: what it returns.
        values: variable -> what is bound to it.
    """
    bound = result
    while isinstance(bound, relax.Var) and bound in values:
        bound = values[bound]
    return list(bound.fields) if isinstance(bound, relax.Tuple) else [result]


def root_of(expr: Any, values: dict[Any, Any]) -> Any:
    """The variable behind other names and shapes of it.

    Args:
        values: variable -> what is bound to it.
    """
    while isinstance(expr, relax.Var) and expr in values:
        value = values[expr]
        if not isinstance(value, relax.Var) and op_name(value) != "relax.reshape":
            break
        expr = value if isinstance(value, relax.Var) else value.args[0]
    return expr
