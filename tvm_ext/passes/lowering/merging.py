"""Two groups of which the second alone reads the first, as one: where a recipe takes it, and it is estimated to pay."""

import math
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
from tvm_ext.core.sizes import EXTENTS
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import beyond_l2

from .choose_recipes import allowed_matches, least_cost

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
    """Merges pairs of a compile; equal ones are weighed once."""

    ctx: CompileContext
    _known: dict[Any, tuple[GlobalVar | None, str]] = field(default_factory=dict)

    def merged(self, pair: Pair, rw: Rewriter) -> Call | None:
        """A call of the group that both become; None if the fusion model refuses, no recipe takes it or two kernels
        are estimated to be faster."""
        fusion = self.ctx.options.fusion
        if not (FUSION_MODELS[fusion] if isinstance(fusion, str) else fusion)(pair.candidate()):
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
        machine, groups = self.ctx.machine, (pair.first, pair.second)
        apart = [least_cost(allowed_matches(group, self.ctx), machine) for group in groups]
        function = pair.function()
        options = allowed_matches(Group(pair.anchor, function), self.ctx)
        together = least_cost(options, machine)
        if together is None or any(p is None for p in apart):
            return None, "; ".join(options.reasons) or "a part has no recipe"
        # The cost of a kernel is that of its reads; what the first one writes is brought into cache and written back.
        written = 2 * math.prod(pair.first.shape) * np.dtype(pair.first.dtype).itemsize
        moved = beyond_l2(written, machine, machine.threads)
        two = sum(p.cost for p in apart if p is not None) + seconds(0, moved, machine, 1)
        if together.cost >= WORTH * two:
            return None, f"as one kernel {together.cost * 1e6:.0f} us are expected, as two {two * 1e6:.0f} us"
        name = pair.anchor.rpartition(".")[2]
        gvar = rw.add_function(function, f"fused_{name}")
        return gvar, f"{together.cost * 1e6:.0f} us are expected, as two kernels {two * 1e6:.0f} us"


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
