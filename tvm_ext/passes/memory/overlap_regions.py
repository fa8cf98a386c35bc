"""Asynchronous regions: the CPU goes on while a back end works, up to what reads its results.

    y = npu_region_0(x); z = relu(y); u = exp(x); v = add(z, u)
      ->   y = npu_region_0(x); u = exp(x); z = relu(y); v = add(z, u)                 order-regions
      ->   npu_region_0(x, y); exp(x, u); npu_region_0(x, y); relu(y, z); add(z, u, v)       wait-for-regions

The first call of a region launches it, the second one, of the same arguments, waits (:mod:`...runtime.drivers`). As the
second call names what the first one reads and writes, memory of both is nobody else's between them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import relax
from tvm.ir import GlobalVar, IRModule

from ...core.graph.nodes import kernels_of, nodes_of
from ...core.graph.relax_graph import bindings_of, op_name, with_body, with_main
from ...core.passes import CompileContext, Event, Pass, PassResult
from ...runtime.drivers import QUEUED
from .updates import root_of
from .workspace import OUTPUTS


class OrderRegions(Pass):
    """Asynchronous regions are called as soon as they can be, what reads their results as late as it can be."""

    name = "order-regions"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        if not (queued := queued_kernels(mod)):
            return PassResult(mod)
        main, blocks = mod["main"], []
        events: dict[bool, list[Event]] = {True: [], False: []}
        for block in main.body.blocks:
            order = _Order(block.bindings, queued)
            blocks.append(type(block)(list(order)))
            for name, calls in order.between.items():
                event = Event(name, f"{calls} calls of kernels lie between its launch and what reads its results")
                events[calls > 0].append(event)
        body = with_body(main, relax.SeqExpr(blocks, main.body.body))
        return PassResult(with_main(mod, body), tuple(events[True]), tuple(events[False]))


class WaitForRegions(Pass):
    """Each asynchronous region is waited for before what reads its results; in a model with states, at once."""

    name = "wait-for-regions"
    needed = "what is launched is waited for"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        if not (queued := queued_kernels(mod)):
            return PassResult(mod)
        main = mod["main"]
        bindings = [*_with_waits(main, queued, at_once=bool(ctx.states))]
        body = relax.SeqExpr([relax.BindingBlock(bindings)], main.body.body)
        why = "the model updates states in place" if ctx.states else ""
        waits = tuple(Event(b.var.name, why or "waits") for b in bindings if b.var.name.startswith(_WAIT))
        mod = with_main(mod, with_body(main, body))
        return PassResult(mod, skipped=waits) if why else PassResult(mod, waits)


#: Names of the variables of waits begin so.
_WAIT = "wait_for_"


def queued_kernels(mod: IRModule) -> dict[str, int]:
    """Kernel of asynchronous regions -> how many of its last arguments it writes, 1 before that is known."""
    kernels = ((name, kernel.attrs) for name, kernel in kernels_of(mod).items() if kernel.attrs)
    return {name: int(attrs.get(OUTPUTS, 1)) for name, attrs in kernels if QUEUED in attrs}


def _kernel_of(value: Any) -> str:
    """The kernel that an expression calls, in either form; "" of others."""
    callee = value.args[0] if op_name(value) == "relax.call_tir" else getattr(value, "op", None)
    return str(callee.name_hint) if isinstance(callee, GlobalVar) else ""


class _Order:
    """Bindings in another order: launches first, then what no region in flight is needed for, each in the old order.

    Attributes:
        between: variable of each region -> calls of kernels between its launch and the first that reads its results.
    """

    def __init__(self, bindings: Sequence[relax.VarBinding], queued: dict[str, int]) -> None:
        self._left, self._queued = list(bindings), queued
        own = {binding.var for binding in bindings}
        self._reads = {b.var: own & {*nodes_of(b.value, relax.Var)} for b in bindings}
        self._flights: dict[relax.Var, frozenset[relax.Var]] = {}  # what is there -> the regions it comes out of
        self.between: dict[str, int] = {}

    def __iter__(self) -> Iterator[relax.VarBinding]:
        flying: dict[relax.Var, int] = {}
        while self._left:
            ready = [b for b in self._left if self._reads[b.var] <= self._flights.keys()]
            binding = min(ready, key=lambda b: self._rank(b, flying))  # the first of several
            self._left.remove(binding)
            kernel = _kernel_of(binding.value)
            regions = self._needs(binding) & flying.keys()
            if kernel:
                for region in regions:
                    self.between[region.name] = flying.pop(region)
                regions = frozenset()
                flying = {region: calls + (kernel not in self._queued) for region, calls in flying.items()}
            if kernel in self._queued:
                flying[binding.var] = 0
                regions = frozenset({binding.var})
            self._flights[binding.var] = regions
            yield binding
        self.between |= {region.name: calls for region, calls in flying.items()}

    def _needs(self, binding: relax.VarBinding) -> frozenset[relax.Var]:
        return frozenset().union(*(self._flights[var] for var in self._reads[binding.var]))

    def _rank(self, binding: relax.VarBinding, flying: dict[relax.Var, int]) -> int:
        kernel = _kernel_of(binding.value)
        waits = bool(kernel) and bool(self._needs(binding) & flying.keys())
        return 2 * waits + (kernel not in self._queued)


def _with_waits(main: relax.Function, queued: dict[str, int], at_once: bool) -> Iterator[relax.VarBinding]:
    """Bindings of calls in place, with a second call of each region before the first that names its results."""
    bindings = bindings_of(main)
    values = {binding.var: binding.value for binding in bindings}
    flying: dict[relax.VarBinding, set[Any]] = {}
    for binding in bindings:
        if not root_of(binding.var, values).same_as(binding.var):  # another name or shape reads nothing
            yield binding
            continue
        named = {root_of(var, values) for var in nodes_of(binding.value, relax.Var)}
        for region in [region for region, results in flying.items() if results & named]:
            del flying[region]
            yield _wait(region)
        yield binding
        if (kernel := _kernel_of(binding.value)) in queued:
            flying[binding] = {root_of(arg, values) for arg in binding.value.args[-queued[kernel] :]}
            if at_once:
                yield _wait(binding)
                flying.clear()
    yield from map(_wait, flying)


def _wait(region: relax.VarBinding) -> relax.VarBinding:
    var = relax.Var(f"{_WAIT}{_kernel_of(region.value)}", region.var.ty)
    return relax.VarBinding(var, region.value)
