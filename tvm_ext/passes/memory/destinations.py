"""Outputs are written into memory of the caller's: a batch composed of pieces is never copied together.

    main(x): y = alloc_tensor(); k(x, y); return y   ->   main(x, y): k(x, y)

A kernel that writes an output finds the memory among its arguments then. What no kernel writes (an output that is a
constant, an input, or the same as another one) is returned as before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ...core.graph.nodes import substituted
from ...core.graph.relax_graph import bindings_of, op_name, shape_of, with_body, with_main
from ...core.passes import CompileContext, Event, Pass, PassResult
from .updates import Updates, can_lend, results_of, root_of


@dataclass(frozen=True)
class Destinations:
    """The outputs that are written into memory of the caller's: index and shape."""

    outputs: tuple[tuple[int, tuple[int, ...]], ...]


class PlaceOutputs(Pass):
    """Memory of outputs is a parameter of `main`."""

    name = "place-outputs"
    needed = "a caller gives the memory of outputs"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        function, outputs = _with_destinations(mod["main"], [output for output, _ in ctx.states])
        updated = {output for output, _ in ctx.facts.get(Updates, Updates()).pairs}
        assert updated <= {index for index, _ in outputs}, "a state that is updated has memory of its own"
        fired = tuple(Event(f"output {index}", f"a kernel writes it, of shape {shape}") for index, shape in outputs)
        return PassResult(with_main(mod, function), fired, facts=(Destinations(outputs),))


def _with_destinations(
    function: relax.Function, first: Sequence[int] = ()
) -> tuple[relax.Function, tuple[tuple[int, tuple[int, ...]], ...]]:
    """The function that takes memory for its outputs as last parameters, and which outputs, in what shape.

    Args:
        function: calls kernels in destination-passing style (after CallTIRRewrite); not yet planned.
        first: outputs that come before others: of several in one memory the first is written, the others are returned.
    """
    values = {b.var: b.value for b in bindings_of(function)}
    results = results_of(function.body.body, values)
    params: dict[Any, relax.Var] = {}
    destinations = []
    for index in sorted(range(len(results)), key=lambda index: index not in first):
        memory = _memory_of(results[index], values)
        if memory is None or memory in params:
            continue
        params[memory] = relax.Var(f"out{index}", memory.ty)
        destinations.append((index, shape_of(memory) or ()))
    if not params:
        return function, ()
    blocks = []
    for block in function.body.blocks:
        kept = [b for b in block.bindings if not (isinstance(b, relax.VarBinding) and b.var in params)]
        blocks.append(type(block)(kept))
    written = {index for index, _ in destinations}
    rest = [r for i, r in enumerate(results) if i not in written] or [next(iter(params))]
    body = relax.SeqExpr(blocks, rest[0] if len(rest) == 1 else relax.Tuple(rest))
    body, types = substituted(body, params), [r.ty for r in rest]
    ret = types[0] if len(types) == 1 else relax.TupleType(types)
    return with_body(function, body, [*function.params, *params.values()], ret), tuple(destinations)


def _memory_of(result: Any, values: dict[Any, Any]) -> relax.Var | None:
    """The allocation behind an output, through other names and shapes of it; None if numpy cannot lend such memory."""
    root = root_of(result, values)
    fits = op_name(values.get(root)) == "relax.builtin.alloc_tensor" and can_lend(root)
    return root if fits else None
