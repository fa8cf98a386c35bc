"""Passes of another package, as entry points bring them: one that is wrong, and two of which one spoils the other."""

from typing import Any

import tvm
from tvm import relax

from tvm_ext.core.graph.relax_graph import Rewriter, op_name
from tvm_ext.core.passes import CompileContext, Pass, PassResult


class DropRelu(Pass):
    """relu(x) -> x, which is wrong."""

    name, op, rule = "drop-relu", "relax.nn.relu", "relu(x) -> x"

    def run(self, mod: tvm.IRModule, ctx: CompileContext) -> PassResult:
        return Rewriter(mod, ctx).rewrite(self._visit)

    def _visit(self, binding: relax.VarBinding, rewriter: Rewriter) -> Any:
        if op_name(binding.value) != self.op:
            return None
        rewriter.fire(self.rule)
        return self.instead(*binding.value.args)

    def instead(self, x: relax.Expr, *more: relax.Expr) -> relax.Expr:
        return x


class ReluAsMaximum(DropRelu):
    """relu(x) -> maximum(x, 0), which is right."""

    name, rule = "relu-as-maximum", "relu(x) -> maximum(x, 0)"

    def instead(self, x: relax.Expr, *more: relax.Expr) -> relax.Expr:
        return relax.op.maximum(x, relax.const(0.0, "float32"))


class MaximumAsMinimum(DropRelu):
    """maximum(x, c) -> minimum(x, c), which is wrong."""

    name, op, rule = "maximum-as-minimum", "relax.maximum", "maximum(x, c) -> minimum(x, c)"

    def instead(self, x: relax.Expr, *more: relax.Expr) -> relax.Expr:
        return relax.op.minimum(x, *more)
