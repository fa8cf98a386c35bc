"""Reshapes that show no memory of arrays of the bounds become copies.

y = reshape(x[N, S, 768], (N * S, 768))   ->   y = call_tir(reshape, (x,))      rows of x lie S of the bounds apart
"""

from collections.abc import Collection
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import IRModule

from tvm_ext.core.graph.relax_graph import Rewriter, dtype_of, main_bindings, op_name, shape_of
from tvm_ext.core.passes import CompileContext, Pass, PassResult

from .alignment import Alignment, is_view
from .solver import Solver


class CopyReshapes(Pass):
    """Kernels for some reshapes.

    Args:
        variables: of `main`, that are bound to them.
    """

    name = "copy-reshapes"
    needed = "in arrays of the bounds they are no views"

    def __init__(self, variables: Collection[str]) -> None:
        self._variables = variables

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            if binding.var.name not in self._variables:
                return None
            source = binding.value.args[0]
            data = te.placeholder(_int64(source), dtype_of(source), "data")
            kernel = te.create_prim_func([data, topi.reshape(data, _int64(binding.var))]).without_attr("global_symbol")
            rw.fire("copied: its rows do not lie behind each other at every size")
            return relax.call_tir(rw.add_function(kernel, "reshape"), [source], binding.var.ty)

        return Rewriter(mod, ctx).rewrite(visit)


def _int64(value: Any) -> list[tirx.IntImm]:
    """The shape of a tensor as TVM's legalization writes it, so that kernels can be fused."""
    return [tirx.IntImm("int64", size) for size in shape_of(value) or ()]


def copied_reshapes(mod: IRModule, alignment: Alignment, solver: Solver) -> frozenset[str]:
    """Variables of `main` that are reshapes, and no view of an array of the bounds."""

    def viewed(var: Any, source: Any) -> bool:
        extents = alignment.operand(source), alignment.extents[var.name]
        return is_view(solver, *extents, shape_of(source) or (), shape_of(var) or ())

    reshapes = (b for b in main_bindings(mod) if op_name(b.value) == "relax.reshape")
    return frozenset(b.var.name for b in reshapes if not viewed(b.var, b.value.args[0]))
