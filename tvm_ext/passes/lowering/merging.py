"""Two groups of which the second alone reads the first, as one: where a recipe takes it, and it is estimated to pay."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GlobalVar

from tvm_ext.core.cost.estimate import seconds
from tvm_ext.core.fusion import FUSION_MODELS, FusionCandidate
from tvm_ext.core.graph.relax_graph import Rewriter, op_name
from tvm_ext.core.group import CONSTANTS, GROUP, WEIGHTS_BYTES, WEIGHTS_IN, Group
from tvm_ext.core.passes import CompileContext
from tvm_ext.core.sizes import EXTENTS, evaluate
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import beyond_l2

from ..sizes.choose_for_sizes import times_over
from .choose_recipes import Matches, allowed_matches

#: Share of the estimated time of two kernels below which one is made. Equal estimates favour one: what lies between
#: two kernels goes through caches that other programs use too, which no estimate knows.
WORTH = 1.03


@dataclass(frozen=True)
class Pair:
    """Calls in `main` of two groups.

    Attributes:
        anchor: of the group that both become.
        first, second: the groups.
        calls: of them; an operand of the second one is `between`.
        between: variable of the first one's result, which nothing else reads.
    """

    anchor: str
    first: Group
    second: Group
    calls: tuple[Call, Call]
    between: relax.Var

    @property
    def operands(self) -> list[Any]:
        """Of one call for both; what both read is one operand."""
        operands: list[Any] = []
        for arg in (arg for call in self.calls for arg in call.args):
            if not arg.same_as(self.between) and not any(arg.same_as(known) for known in operands):
                operands.append(arg)
        return operands

    @property
    def wiring(self) -> tuple[int | None, ...]:
        """Of each operand of both calls its number in :attr:`operands`; None of what is between."""
        operands = self.operands
        return tuple(next((k for k, known in enumerate(operands) if known.same_as(arg)), None)
                     for call in self.calls for arg in call.args)  # fmt: skip

    def function(self) -> relax.Function:
        """Both groups as one function of :attr:`operands`."""
        wiring = iter(self.wiring)
        params: dict[int, relax.Var] = {}
        constants: list[int] = []
        extents: list[Any] = []
        now: dict[relax.Var, relax.Var] = {}
        bindings: list[relax.VarBinding] = []
        for group in (self.first, self.second):
            used = group.extents or [p.shape for p in group.params]
            for param, extent in zip(group.params, used, strict=False):
                if (number := next(wiring)) is None:
                    now[param.var] = now[self.first.result]
                    continue
                if number not in params:
                    params[number] = relax.Var(f"p{number}", param.var.ty)
                    constants += [number] if param.constant else []
                    extents.append(extent)
                now[param.var] = params[number]
            for binding in group.bindings:
                old, last = binding.value, binding.var.same_as(self.second.result)
                operands = [now.get(a, a) if isinstance(a, relax.Var) else a for a in old.args]
                value = Call(old.op, operands, old.attrs, old.ty_args, ret_ty=old.ty)
                now[binding.var] = (relax.Var if last else relax.DataflowVar)(f"v{len(bindings)}", binding.var.ty)
                bindings.append(relax.VarBinding(now[binding.var], value))
        result = now[self.second.result]
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
        attrs: dict[str, Any] = {GROUP: self.anchor, CONSTANTS: constants, "Primitive": 1}
        attrs |= {key: value for key, value in self.second.function.attrs.items() if key in (WEIGHTS_IN, WEIGHTS_BYTES)}
        if self.second.extents is not None:
            attrs[EXTENTS] = [*extents, self.second.extents[-1]]
        return relax.Function([params[k] for k in range(len(params))], body, result.ty).with_attr(attrs)

    def candidate(self) -> FusionCandidate:
        """What a fusion model is asked. Each anchor keeps an expression of its own."""
        first, second = self.first, self.second
        members, joining = (tuple(op_name(b.value) for b in group.bindings) for group in (first, second))
        saved = 2 * math.prod(first.shape) * np.dtype(first.dtype).itemsize
        return FusionCandidate(first.anchor, members, joining, second.shape, second.dtype, saved, len(joining))


@dataclass
class Merger:
    """Merges pairs of a compile; equal ones are weighed once.

    Attributes:
        sizes: of symbols, at which times are compared beside the bounds.
        estimates: whether the fusion model is asked, and times are compared; if not, all pairs are merged.
    """

    ctx: CompileContext
    sizes: Sequence[Mapping[str, int]] = ()
    estimates: bool = True
    _known: dict[Any, tuple[GlobalVar | None, str]] = field(default_factory=dict)

    def merged(self, pair: Pair, rw: Rewriter) -> Call | None:
        """A call of the group that both become; None if the fusion model refuses, no recipe takes it or two kernels
        are estimated to be faster."""
        fusion = self.ctx.options.fusion
        asked = FUSION_MODELS[fusion] if isinstance(fusion, str) else fusion
        if self.estimates and not asked(pair.candidate()):
            return None
        key = pair.first.name, pair.second.name, pair.wiring
        if key not in self._known:
            self._known[key] = self._weighed(pair, rw)
        gvar, said = self._known[key]
        if gvar is None:
            rw.skip(said)
            return None
        rw.fire(f"{gvar.name_hint}: {said}")
        rw.absorb(pair.between)
        return Call(gvar, pair.operands)

    def _weighed(self, pair: Pair, rw: Rewriter) -> tuple[GlobalVar | None, str]:
        function, said = pair.function(), "as at the bounds"
        if self.estimates:
            worth, said = self._compared(pair, Group(pair.anchor, function))
            if not worth:
                return None, said
        name = pair.anchor.rpartition(".")[2]
        return rw.add_function(function, f"fused_{name}"), said

    def _compared(self, pair: Pair, merged: Group) -> tuple[bool, str]:
        """Whether one kernel is worth it, over all sizes as a part of the time of two; and what is expected."""
        first, second, options = self._times(pair.first), self._times(pair.second), allowed_matches(merged, self.ctx)
        together = self._times(merged, options)
        if not first or not second or not together:
            return False, "; ".join(options.reasons) or "a part has no recipe"
        apart = [sum(seconds) for seconds in zip(first, second, self._between(pair.first), strict=True)]
        known = [seconds / both for seconds, both in zip(together, apart, strict=True) if 0 < both < math.inf]
        said = f"as one kernel {together[0] * 1e6:.0f} us are expected, as two {apart[0] * 1e6:.0f} us"
        said += f", at all sizes {sum(known) / len(known):.2f} of their time" if len(known) > 1 else ""
        return sum(known) < WORTH * len(known), said

    def _times(self, group: Group, options: Matches | None = None) -> list[float]:
        options = options or allowed_matches(group, self.ctx)
        return times_over(group, options, self.sizes, self.ctx.machine)

    def _between(self, group: Group) -> list[float]:
        """Seconds in which what a group writes is brought into cache and written back, at the bounds and at all sizes:
        the cost of a kernel is that of its reads."""
        machine, extents = self.ctx.machine, group.shape if group.extents is None else group.extents[-1]
        shapes = [group.shape, *([evaluate(dim, size) for dim in extents] for size in self.sizes)]
        written = [2 * math.prod(shape) * np.dtype(group.dtype).itemsize for shape in shapes]
        return [seconds(0, beyond_l2(moved, machine, machine.threads), machine, 1) for moved in written]


def group_of(call: Any, rw: Rewriter, anchor: str) -> Group | None:
    """The group of this anchor that a call is of; else None, also of one that the pass itself made."""
    if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
        return None
    function = rw.mod.functions.get(call.op)
    if not isinstance(function, relax.Function) or str(function.attrs.get(GROUP, "")) != anchor:
        return None
    return Group(call.op.name_hint, function)


def operand_of(group: Group, call: Call, param: Any) -> Any:
    """What a call passes for a parameter."""
    return call.args[group.params.index(param)]
