"""Passes of another package, as entry points bring them: one that is wrong, and two of which one spoils the other."""

from typing import Any

import tvm
from tvm import relax

from tvm_ext.core.graph.relax_graph import Rewriter, op_name
from tvm_ext.core.passes import CompileContext, Pass, PassResult


class DropRelu(Pass):
    """relu(x) -> x, which is wrong."""

    name = "drop-relu"

    def run(self, mod: tvm.IRModule, ctx: CompileContext) -> PassResult:
        return Rewriter(mod, ctx).rewrite(self._visit)

    def _visit(self, binding: relax.VarBinding, rewriter: Rewriter) -> Any:
        if op_name(binding.value) != "relax.nn.relu":
            return None
        rewriter.fire("relu(x) -> x")
        return binding.value.args[0]


class ReluAsMaximum(DropRelu):
    """relu(x) -> maximum(x, 0), which is right."""

    name = "relu-as-maximum"

    def _visit(self, binding: relax.VarBinding, rewriter: Rewriter) -> Any:
        if op_name(binding.value) != "relax.nn.relu":
            return None
        rewriter.fire("relu(x) -> maximum(x, 0)")
        return relax.op.maximum(binding.value.args[0], relax.const(0.0, "float32"))


class MaximumAsMinimum(DropRelu):
    """maximum(x, c) -> minimum(x, c), which is wrong."""

    name = "maximum-as-minimum"

    def _visit(self, binding: relax.VarBinding, rewriter: Rewriter) -> Any:
        if op_name(binding.value) != "relax.maximum":
            return None
        rewriter.fire("maximum(x, c) -> minimum(x, c)")
        return relax.op.minimum(*binding.value.args)
