"""A computation in Relax that is repeated: it becomes a function of its own, which one kernel calls again and again.

    s1, y1 = f(s0, x[0]); s2, y2 = f(s1, x[1]); ...   ->   s, y = call_tir(loop, (program, n, true, s0, x, w))

What the computation reads of the function around it is handed in with each call; what constants alone decide of that,
such as a transposed weight, is computed inside, where passes fold it. See :mod:`tvm_ext.runtime.control_flow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, shape_of
from ...runtime import control_flow
from ...runtime.spec import TensorSpec
from ..fallback.region_calls import emit_call
from ..naming import identifier
from ..trace import Trace
from .subgraph import Graph, constant_of

if TYPE_CHECKING:
    from ..importer import Imported

Step = Callable[[list[Any], list[Any]], tuple[Any, list[Any]]]
"""(states, slices) -> what is collected, and the states after it, each of the shape that it had: emitted variables."""


def repeat(
    graph: Graph, step: Step, states: Sequence[Any], scanned: Sequence[Any], backwards: bool
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Emit the call of a loop over all slices of tensors, as the work of the node that is converted.

    Args:
        graph: that is being converted.
        step: is called once, while the function is built.
        states: that the first step gets: tensors.
        scanned: tensors with a slice for each step along their first axis.
        backwards: whether the last slice comes first; what is collected is in the order of the slices all the same.

    Returns:
        What all steps collect, (steps, ..), and the states after the last one.
    """
    count = (shape_of(scanned[0]) or ())[0]
    params = [_param(f"state{i}", shape_of(x), x) for i, x in enumerate(states)]
    params += [_param(f"slice{i}", (shape_of(x) or ())[1:], x) for i, x in enumerate(scanned)]
    trace, captured = _traced(step, params, len(states), graph.label)
    body = _imported(trace, graph)
    name = graph.add_body(body)
    *after, collected = body.outputs
    along = ((0, backwards),)
    program = control_flow.Loop(name, len(states), along * len(scanned), along, counted=False)
    head = [constant_of(np.array(count, np.int64)), constant_of(np.array(True))]
    results, region = emit_call(
        graph.names.fresh(identifier(graph.label)), (control_flow.NAME, control_flow.__name__),
        control_flow.program_of(program), [*head, *states, *scanned, *captured],
        [*((spec.sizes, spec.dtype) for spec in after), ((count, *collected.sizes), collected.dtype)],
        {graph.label: (graph.node.op_type, "its steps are calls of one function")}, {"body": name},
    )  # fmt: skip
    graph.regions.append(region)
    *last, everything = map(relax.BlockBuilder.current().emit, results)
    return everything, last


def _param(name: str, shape: Any, x: Any) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype_of(x)))


def _traced(step: Step, params: list[relax.Var], states: int, label: str) -> tuple[Trace, list[relax.Var]]:
    """One step as a module of its own, and the variables around it that become further parameters of it."""
    outer, inner = relax.BlockBuilder.current(), relax.BlockBuilder()
    with inner.function("main", params):
        with inner.dataflow():
            collected, after = step(list(params[:states]), list(params[states:]))
            outputs = [*after, collected]
            marker = inner.emit(relax.const(0, "int64"))
            result = inner.emit_output(relax.Tuple(outputs))
        inner.emit_func_output(result)
    mod = inner.get()
    function = mod["main"]
    constants: dict[relax.Var, Any] = {}
    captured = [var for var in relax.analysis.free_vars(function) if not _folds(var, outer, constants)]
    fresh = {var: _param(var.name, shape_of(var), var) for var in captured}
    bindings = [relax.VarBinding(var, value) for var, value in constants.items()]
    inside = relax.SeqExpr([relax.DataflowBlock(bindings), *function.body.blocks], function.body.body)
    whole = relax.Function([*params, *captured], inside, function.ret_ty, function.is_pure, function.attrs)
    mod.update_func(
        mod.get_global_var("main"), tvm_ffi.structural_map(whole, (relax.Var, lambda var: fresh.get(var, var)))
    )
    results = {var: (var.name, [label]) for var in outputs}
    return Trace(mod, {marker: [label]}, results, outputs), captured


def _folds(var: relax.Var, builder: relax.BlockBuilder, constants: dict[relax.Var, Any]) -> bool:
    """Whether constants alone decide a variable of a function that is being built.

    Args:
        constants: such variable -> its value, in order; more are added.
    """
    if var in constants:
        return True
    value = builder.lookup_binding(var)
    if not _is_plain(value) or not all(_folds(x, builder, constants) for x in relax.analysis.free_vars(value)):
        return False
    constants[var] = value
    return True


def _is_plain(value: Any) -> bool:
    """Whether a binding is an operator's call or an element of a tuple: no kernel, which is of one module."""
    return isinstance(value, (GenericConst, relax.TupleGetItem)) or (
        isinstance(value, relax.Call) and not relax.analysis.all_global_vars(value)
    )


def _imported(trace: Trace, graph: Graph) -> Imported:
    """The body as an import, whose variables are all the node's work."""
    from ..importer import Imported
    from ..relax_names import named_module

    names = [f"output{i}" for i in range(len(trace.outputs))]
    mod, provenance = named_module(trace, names)
    inputs = _specs((var.name, var) for var in mod["main"].params)
    outputs = _specs(zip(names, trace.outputs, strict=True))
    return Imported(mod, inputs, outputs, provenance, (), {graph.label: graph.node.op_type}, {})


def _specs(tensors: Iterable[tuple[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, shape_of(x) or (), dtype_of(x)) for name, x in tensors)
