"""Outputs are written into memory of the caller's: a batch composed of pieces is never copied together.

    main(x): y = alloc_tensor(); k(x, y); return y   ->   main(x, y): k(x, y)

A kernel that writes an output finds the memory among its arguments then. What no kernel writes (an output that is a
constant, an input, or the same as another one) is returned as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from ...core.graph.relax_graph import bindings_of, dtype_of, op_name, shape_of, with_main
from ...core.passes import CompileContext, Event, Pass, PassResult
from ...runtime.memory.arrays import zero_copy


@dataclass(frozen=True)
class Destinations:
    """The outputs that are written into memory of the caller's: index and shape."""

    outputs: tuple[tuple[int, tuple[int, ...]], ...]


class PlaceOutputs(Pass):
    """Memory of outputs is a parameter of `main`."""

    name = "place-outputs"
    needed = "a caller gives the memory of outputs"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        function, outputs = _with_destinations(mod["main"])
        fired = tuple(Event(f"output {index}", f"a kernel writes it, of shape {shape}") for index, shape in outputs)
        return PassResult(with_main(mod, function), fired, facts=(Destinations(outputs),))


def _with_destinations(function: relax.Function) -> tuple[relax.Function, tuple[tuple[int, tuple[int, ...]], ...]]:
    """The function that takes memory for its outputs as last parameters, and which outputs, in what shape.

    Args:
        function: calls kernels in destination-passing style (after CallTIRRewrite); not yet planned.
    """
    values = {b.var: b.value for b in bindings_of(function)}
    results = _results(function.body.body, values)
    params: dict[Any, relax.Var] = {}
    destinations = []
    for index, result in enumerate(results):
        memory = _memory_of(result, values)
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
    body = tvm_ffi.structural_map(body, (relax.Var, lambda var: params.get(var, var)))
    types = [r.ty for r in rest]
    ret = types[0] if len(types) == 1 else relax.TupleType(types)
    new = relax.Function([*function.params, *params.values()], body, ret, function.is_pure, function.attrs)
    return new, tuple(destinations)


def _results(result: Any, values: dict[Any, Any]) -> list[Any]:
    found = _definition(result, values)
    return list(found.fields) if isinstance(found, relax.Tuple) else [result]


def _definition(expr: Any, values: dict[Any, Any]) -> Any:
    while isinstance(expr, relax.Var) and expr in values:
        expr = values[expr]
    return expr


def _memory_of(result: Any, values: dict[Any, Any]) -> relax.Var | None:
    """The allocation behind an output, through other names and shapes of it; None if numpy cannot lend such memory."""
    while isinstance(result, relax.Var) and result in values:
        value = values[result]
        if op_name(value) == "relax.builtin.alloc_tensor":
            fits = zero_copy(_numpy(dtype_of(result)), shape_of(result) or ())
            return result if fits else None
        result = value.args[0] if op_name(value) == "relax.reshape" else value
    return None


def _numpy(dtype: str) -> np.dtype[Any]:
    try:
        return np.dtype(dtype)
    except TypeError:  # bfloat16 and the like
        return np.dtype("V1")
