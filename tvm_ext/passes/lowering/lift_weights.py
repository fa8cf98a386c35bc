"""Weights become parameters of `main`: they live in the artifact as plain bytes, not in the compiled module.
The program is final here but for memory: what each call of a kernel reads and writes is read off it.

y = call_tir(k, (x, <constant>))   ->   main(x, w0): y = call_tir(k, (x, w0))
return <constant of no elements>   ->   main(x, w0): return w0        TVM cannot read again what it writes of one
"""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from ...core.graph.call_site import CallSite, Written
from ...core.graph.nodes import nodes_of
from ...core.graph.relax_graph import (
    Rewriter,
    array_of,
    dtype_of,
    main_bindings,
    op_name,
    shape_of,
    tuple_item,
    with_body,
    with_main,
)
from ...core.passes import CompileContext, Pass, PassResult
from .kernel_interfaces import check_kernels


class LiftWeights(Pass):
    """Constant tensors that kernels read become trailing parameters; `ctx.weights` holds their values."""

    name = "lift-weights"
    needed = "a program takes its weights as arguments"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        ctx.settle()
        rewriter = Rewriter(mod, ctx)
        lifter = _Lifter(rewriter, ctx)
        result = rewriter.rewrite(lifter.visit)
        check_kernels(result.mod, ctx.provenance)
        _note_call_sites(result.mod, ctx)
        main = result.mod["main"]
        body = relax.SeqExpr(main.body.blocks, lifter.result(main.body.body))
        if not lifter.params:
            return result
        lifted = with_body(main, body, [*main.params, *lifter.params])
        ctx.weights.extend(lifter.values)
        return PassResult(with_main(result.mod, lifted), result.fired, result.skipped)


class _Lifter:
    def __init__(self, rewriter: Rewriter, ctx: CompileContext) -> None:
        self._rw = rewriter
        self._ctx = ctx
        self.params: list[relax.Var] = []
        self.values: list[np.ndarray] = []
        self._lifted: dict[GenericConst, relax.Var] = {}
        self._packed = {packed: (value, layout) for packed, value, layout in ctx.packed}

    def visit(self, binding: relax.VarBinding, rw: Rewriter) -> Any:
        call = binding.value
        if op_name(call) != "relax.call_tir":
            return None
        kernel: GlobalVar = call.args[0]
        self._ctx.kernels[kernel.name_hint].calls.append(self._ctx.provenance.of(binding.var.name))
        operands = list(call.args[1].fields)
        if not any(isinstance(o, GenericConst) for o in operands):
            return None
        lifted = relax.Tuple([self._lift(o) if isinstance(o, GenericConst) else o for o in operands])
        rw.fire(f"{sum(isinstance(o, GenericConst) for o in operands)} weights")
        return Call(call.op, [kernel, lifted, *call.args[2:]], call.attrs, call.ty_args)

    def result(self, value: Any) -> Any:
        """What `main` returns, without constants of no elements."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.result(field) for field in value.fields])
        return self._lift(value) if isinstance(value, GenericConst) and not array_of(value).size else value

    def _lift(self, constant: GenericConst) -> relax.Var:
        if (known := self._lifted.get(constant)) is not None:
            return known
        self._lifted[constant] = param = relax.Var(f"w{len(self.params)}", constant.ty)
        self.params.append(param)
        self._note_origin(constant)
        self._note_program(constant)
        self.values.append(array_of(constant))
        return param

    def _note_origin(self, constant: GenericConst) -> None:
        if (origin := self._packed.get(constant)) is not None:
            value, layout = origin
            self._ctx.origins[len(self._ctx.weights) + len(self.values)] = array_of(value), layout

    def _note_program(self, constant: GenericConst) -> None:
        for region in self._ctx.offload.regions if self._ctx.offload else ():
            if region.program.same_as(constant):
                region.weight = len(self._ctx.weights) + len(self.values)


def _note_call_sites(mod: IRModule, ctx: CompileContext) -> None:
    """Put the call sites of `main` into `ctx.kernels`, for the report."""
    bindings = main_bindings(mod)
    items = _items(bindings)
    sources: dict[str, set[int]] = {}  # variable -> the calls whose results are in it
    order = 0
    for binding in bindings:
        name, value = binding.var.name, binding.value
        reads = sorted({call for source in nodes_of(value, relax.Var) for call in sources.get(source.name, ())})
        sources[name] = set(reads)
        if op_name(value) != "relax.call_tir":
            continue
        sources[name] = {order}
        writes = tuple(_written(var, ctx) for var in items.get(name, [binding.var]))
        site = CallSite(order, ctx.provenance.of(name), tuple(reads), writes)
        ctx.kernels[value.args[0].name_hint].sites.append(site)
        order += 1


def _items(bindings: list[relax.VarBinding]) -> dict[str, list[relax.Var]]:
    """Variable of a tuple -> the variables of its items, in order; an item that nothing takes is a new variable."""
    taken: dict[str, dict[int, relax.Var]] = {}
    types = {b.var.name: b.var.ty for b in bindings if isinstance(b.var.ty, relax.TupleType)}
    for binding in bindings:
        item = tuple_item(binding.value)
        if item and isinstance(item[0], relax.Var):
            taken.setdefault(item[0].name, {})[item[1]] = binding.var
    return {
        name: [taken.get(name, {}).get(i, relax.Var(f"{name}.{i}", field)) for i, field in enumerate(ty.fields)]
        for name, ty in types.items()
    }


def _written(var: relax.Var, ctx: CompileContext) -> Written:
    placed = ctx.provenance.placement(var.name)
    layout, shape = placed if placed else (None, shape_of(var) or ())
    return Written(var.name, shape, dtype_of(var), ctx.provenance.held(var.name), layout)
