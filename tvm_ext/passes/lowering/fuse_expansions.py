"""Fusion of a pointwise convolution with the depthwise convolution behind it, where it is estimated to pay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from tvm_ext.core.graph.relax_graph import Rewriter, main_bindings
from tvm_ext.core.passes import CompileContext, Pass, PassResult, run_passes

from .merging import Merger, Pair, group_of, operand_of

ANCHOR, _CONV = "expand_depthwise", "relax.nn.conv2d"


@dataclass(frozen=True)
class Fused:
    """Numbers of the bindings of `main` before the pass: calls of depthwise convolutions that are in merged groups."""

    bindings: frozenset[int]


class FuseExpansions(Pass):
    """The first two layers of an inverted residual become one group.

    Before -> after::

        m = conv2d_clip(x, w1); y = conv2d_clip1(m, w2)   ->   y = expand_depthwise(x, w1, w2)

    `m` is read by nothing else. The group is made if a recipe takes it at no more estimated time than the two kernels:
    where the rows that two strips both need are few, so that `m` costs little more and never leaves L2.

    Args:
        sizes: of symbols, at which times are compared beside the bounds.
        like: what the program of the bounds fused, to be fused in one of other sizes; None to estimate.
    """

    name = "fuse-expansions"

    def __init__(self, sizes: Sequence[Mapping[str, int]] = (), like: Fused | None = None) -> None:
        self._sizes, self._like = sizes, like

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        merger, like = Merger(ctx, self._sizes, estimates=self._like is None), self._like
        fused: set[int] = set()
        numbers = {binding.var: number for number, binding in enumerate(main_bindings(mod))}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            number = numbers[binding.var]
            pair = _pair(binding.value, rw) if like is None or number in like.bindings else None
            if pair is None or (call := merger.merged(pair, rw)) is None:
                return None
            fused.add(number)
            return call

        result = Rewriter(mod, ctx).rewrite(visit)
        mod = relax.transform.DeadCodeElimination()(result.mod)
        return PassResult(mod, result.fired, result.skipped, (Fused(frozenset(fused)),))


def fused_alike(
    programs: Sequence[tuple[IRModule, CompileContext]], sizes: Sequence[Mapping[str, int]]
) -> list[IRModule]:
    """The programs of a model of any size, that of the bounds first, with the same groups fused in all; none if nothing
    is fused.

    Args:
        sizes: beside the bounds, at which times are compared.
    """
    (mod, ctx), *others = programs
    mod = run_passes((FuseExpansions(sizes),), mod, ctx)
    fused = ctx.facts.get(Fused)
    if not fused or not fused.bindings:
        return []
    return [mod, *(FuseExpansions(like=fused)(other, own).mod for other, own in others)]


def _pair(call: Any, rw: Rewriter) -> Pair | None:
    """A convolution and the depthwise one that alone reads it; else None."""
    depthwise = group_of(call, rw, _CONV)
    if depthwise is None or depthwise.call is None or int(depthwise.call.attrs.groups) == 1:
        return None
    if {depthwise.dtype, *(p.dtype for p in depthwise.params)} != {"float32"}:
        return None  # tensors that are stored in fewer bits need no kernel that saves their traffic
    data = depthwise.operand(0)
    value = operand_of(depthwise, call, data) if data is not None else None
    first = rw.definition(value) if isinstance(value, relax.Var) and rw.single_use(value) else None
    expand = group_of(first, rw, _CONV)
    if expand is None or any(not p.constant for p in expand.params if p != expand.operand(0)):
        return None
    if {expand.dtype, *(p.dtype for p in expand.params)} != {"float32"}:
        return None
    return Pair(ANCHOR, expand, depthwise, (first, call), value)
