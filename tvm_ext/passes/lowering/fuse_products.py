"""Kernels of few rows by weights of few bits: what stands in front of a product, and products that meet, become one."""

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from tvm_ext.core.graph.relax_graph import Rewriter
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.ops.block_weights import NAME
from tvm_ext.schedules.steps.block_weight import RMS_NORM

from .merging import Merger, Pair, group_of, operand_of


class FuseProducts(Pass):
    """A step of one token is a chain of short kernels: each less is a launch less, and a row that is rounded once.

    Before -> after::

        u = matmul_blocks(x, up); y = matmul_blocks_silu_multiply(x, gate, u)   ->   y = matmul_blocks(x, up, gate)
        h = rms_norm(x, g); y = matmul_blocks(h, w)                              ->   y = matmul_blocks(x, g, w)

    `u` and `h` are read by nothing else. A group is made if a recipe takes it at no more estimated time than two
    kernels: where rows are few.
    """

    name = "fuse-products"
    stage = "grouped"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        fired: tuple[Event, ...] = ()
        skipped: tuple[Event, ...] = ()
        merger = Merger(ctx)
        for pair_of in (_products, _normalized):

            def visit(binding: relax.VarBinding, rw: Rewriter, pair_of: Any = pair_of) -> Any:
                pair = pair_of(binding.value, rw)
                return pair and merger.merged(pair, rw)

            result = Rewriter(mod, ctx).rewrite(visit)
            mod = relax.transform.DeadCodeElimination()(result.mod) if result.fired else result.mod
            fired, skipped = fired + result.fired, skipped + result.skipped
        return PassResult(mod, fired, skipped)


def _products(call: Any, rw: Rewriter) -> Pair | None:
    """A product whose epilogue alone reads another one of the same rows; else None."""
    group = group_of(call, rw, NAME)
    if group is None or (data := group.operand(0)) is None or data.decode or group.beside:
        return None
    rows = operand_of(group, call, data)
    for value in call.args:
        other = rw.definition(value) if isinstance(value, relax.Var) and not value.same_as(rows) else None
        first = group_of(other, rw, NAME)
        if first is None or first.beside or (theirs := first.operand(0)) is None or theirs.decode:
            continue
        if not operand_of(first, other, theirs).same_as(rows):
            continue
        if rw.single_use(value):
            return Pair(NAME, first, group, (other, call), value)
        rw.skip(f"the product that it reads, {value.name}, is read by {len(rw.uses[value])} kernels")
    return None


def _normalized(call: Any, rw: Rewriter) -> Pair | None:
    """A product of rows whose norm nothing else reads; else None."""
    group = group_of(call, rw, NAME)
    if group is None or (data := group.operand(0)) is None or data.decode:
        return None
    value = operand_of(group, call, data)
    norm = group_of(rw.definition(value), rw, RMS_NORM)
    if norm is None or len(norm.bindings) > 1:
        return None
    if rw.single_use(value):
        return Pair(NAME, norm, group, (rw.definition(value), call), value)
    rw.skip(f"its norm, {value.name}, is read by {len(rw.uses[value])} kernels")
    return None
