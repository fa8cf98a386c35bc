"""Fusion of a pointwise convolution with the depthwise convolution behind it, where it is estimated to pay."""

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from tvm_ext.core.graph.relax_graph import Rewriter
from tvm_ext.core.group import Group
from tvm_ext.core.mixing import mixes_symbolic
from tvm_ext.core.passes import CompileContext, Pass, PassResult

from .merging import Merger, Pair, group_of, operand_of

ANCHOR, _CONV = "expand_depthwise", "relax.nn.conv2d"


class FuseExpansions(Pass):
    """The first two layers of an inverted residual become one group.

    Before -> after::

        m = conv2d_clip(x, w1); y = conv2d_clip1(m, w2)   ->   y = expand_depthwise(x, w1, w2)

    `m` is read by nothing else, and sizes of images are known. The group is made if a recipe takes it at no more
    estimated time than the two kernels: where the rows that two strips both need are few, so that `m` costs little more
    and never leaves L2.
    """

    name = "fuse-expansions"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        merger = Merger(ctx)

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            pair = _pair(binding.value, rw)
            return pair and merger.merged(pair, rw)

        result = Rewriter(mod, ctx).rewrite(visit)
        return PassResult(relax.transform.DeadCodeElimination()(result.mod), result.fired, result.skipped)


def _pair(call: Any, rw: Rewriter) -> Pair | None:
    """A convolution and the depthwise one that alone reads it; else None."""
    depthwise = _conv_group(call, rw)
    if depthwise is None or depthwise.call is None or int(depthwise.call.attrs.groups) == 1:
        return None
    if {depthwise.dtype, *(p.dtype for p in depthwise.params)} != {"float32"}:
        return None  # tensors that are stored in fewer bits need no kernel that saves their traffic
    data = depthwise.operand(0)
    value = operand_of(depthwise, call, data) if data is not None else None
    first = rw.definition(value) if isinstance(value, relax.Var) and rw.single_use(value) else None
    expand = _conv_group(first, rw)
    if expand is None or any(not p.constant for p in expand.params if p != expand.operand(0)):
        return None
    if {expand.dtype, *(p.dtype for p in expand.params)} != {"float32"}:
        return None
    return Pair(ANCHOR, expand, depthwise, (first, call), value)


def _conv_group(call: Any, rw: Rewriter) -> Group | None:
    group = group_of(call, rw, _CONV)
    return None if group is None or mixes_symbolic(group) else group
