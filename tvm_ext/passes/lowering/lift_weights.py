"""Weights become parameters of `main`: they live in the artifact as plain bytes, not in the compiled module.

y = call_tir(k, (x, <constant>))   ->   main(x, w0): y = call_tir(k, (x, w0))
return <constant of no elements>   ->   main(x, w0): return w0        TVM cannot read again what it writes of one
"""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import Rewriter, array_of, op_name, with_body, with_main
from tvm_ext.core.passes import CompileContext, Pass, PassResult

from ..steps.call_sites import note_call_sites
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
        note_call_sites(result.mod, ctx)
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
