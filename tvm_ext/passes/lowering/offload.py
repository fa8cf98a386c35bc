"""Offload: regions that a back end takes, and that pay, become kernels which call its driver.

    y = matmul(x, w); z = add(y, b); r = relu(z)   ->   r = call_tir(npu_region_0, (program, x))

The program is a constant, and becomes a weight like any other; constants of the region are in it. The pass stands
after simplification, where operators are as the model means them, and before attention and grouping hide matmuls.
"""

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GlobalVar, IRModule

from tvm_ext.byoc.kernel import kernel_of
from tvm_ext.byoc.partition import Partition, Partitioner, Planned
from tvm_ext.byoc.region import Composite, multiply_adds
from tvm_ext.byoc.relax_view import RelaxView
from tvm_ext.byoc.settings import Offloading
from tvm_ext.core.cost.work import flops_of, flops_of_call
from tvm_ext.core.graph.offload_plan import COMPILE_TIME, CPU, OffloadedRegion, OffloadPlan
from tvm_ext.core.graph.relax_graph import DROP, Rewriter, bindings_of, iter_groups, with_body, with_main
from tvm_ext.core.group import Group
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.core.plan import Kernel

from ..conditions import unique_names
from ..steps.products import products_of
from .choose_recipes import allowed_matches, least_cost
from .group_operations import GroupOperations, grouped_function
from .lower_precision import precision_plan
from .prepare_storage import PrepareStorage

#: Of kernels that no recipe makes: operations a second. Stock TVM takes 2.8 s for ResNet-18's 3.6 G.
_GENERIC_FLOPS = 1.3e9


class Offload(Pass):
    """Partition `main` for one back end.

    Args:
        offloading: the back end, its options, and the choice of work.
    """

    name = "offload"
    requires = (unique_names,)
    ensures = (unique_names,)

    def __init__(self, offloading: Offloading) -> None:
        self._offloading = offloading

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        view = RelaxView(mod, ctx.provenance)
        host = _Host(view, ctx)
        kept = dict.fromkeys(ctx.switches.nodes, "is switched off")
        rounds = self._offloading.backend.precision(self._offloading.options) != "float32"
        products = products_of(mod["main"], ctx) if rounds else ()
        kept |= {
            node: f"keeps float32: {product.kept}" for product in products if product.kept for node in product.nodes
        }
        partition = Partitioner(view, self._offloading, ctx.ownership.types, host.seconds, kept).partition()
        if rounds:
            composites = (composite for planned in partition.planned for composite in planned.region.composites)
            taken = {node for composite in composites for node in composite.anchor.nodes}
            ctx.precision = precision_plan(products, mod, ctx, taken)
        before = ctx.offload or OffloadPlan("")
        ctx.offload = OffloadPlan(self._offloading.backend.name, list(before.regions))
        emitter = _Emitter(_reordered(mod, partition), ctx, partition, self._offloading)
        result = emitter.rewriter.rewrite(emitter.visit)
        ctx.offload.places = {**_places(view, partition, ctx), **before.places}
        return result


class _Emitter:
    """Replaces the members of each region by one call."""

    def __init__(self, mod: IRModule, ctx: CompileContext, partition: Partition, offloading: Offloading) -> None:
        self.rewriter = Rewriter(mod, ctx)
        self._ctx, self._partition, self._offloading = ctx, partition, offloading
        self._vars = {v.name: v for v in [*mod["main"].params, *(b.var for b in bindings_of(mod["main"]))]}
        self._of = {name: planned for planned in partition.planned for name in _members(planned)}
        self._calls: dict[str, relax.Var] = {}

    def visit(self, binding: relax.VarBinding, rw: Rewriter) -> Any:
        name = binding.var.name
        planned = self._of.get(name)
        if planned is None:
            if self._partition.planned and name not in self._partition.live:
                return DROP
            if reason := self._partition.refusals.get(name):
                rw.skip(reason)
            return None
        outputs = [value.name for value in planned.region.outputs]
        if planned.region.name not in self._calls:
            self._calls[planned.region.name] = self._call(planned)
        if name not in outputs:
            return DROP
        call = self._calls[planned.region.name]
        return call if len(outputs) == 1 else relax.TupleGetItem(call, outputs.index(name))

    def _call(self, planned: Planned) -> relax.Var:
        region, backend = planned.region, self._offloading.backend
        program = relax.const(np.frombuffer(planned.lowered.program, np.uint8))
        kernel = kernel_of(region, len(planned.lowered.program), self._offloading.asynchronous)
        gvar: GlobalVar = self.rewriter.add_function(kernel, region.name)
        self._note(planned, program, gvar.name_hint)
        pattern = ", ".join(composite.pattern for composite in region.composites[:3])
        self.rewriter.fire(f"{region.name}: {len(region.composites)} of {backend.name}'s patterns ({pattern}) in one")
        arguments = [program, *(self._vars[value.name] for value in region.inputs)]
        types = [relax.TensorType(value.shape, value.dtype) for value in region.outputs]
        self.rewriter.absorb(*(self._vars[operation.result.name] for operation in region.operations))
        return self.rewriter.emit(relax.call_tir(gvar, arguments, types if len(types) > 1 else types[0]), region.name)

    def _note(self, planned: Planned, program: Any, kernel: str) -> None:
        region, backend, plan = planned.region, self._offloading.backend, self._ctx.offload
        assert plan is not None
        composites = tuple((c.pattern, tuple(o.op for o in c.operations)) for c in region.composites)
        plan.regions.append(
            OffloadedRegion(
                region.name, backend.name, backend.module, program, kernel, region.nodes, composites,
                planned.seconds, planned.host_seconds, planned.lowered.facts,
                tuple(tuple(dict.fromkeys((*c.anchor.nodes, *c.nodes))) for c in region.composites),
            )
        )  # fmt: skip
        estimate, flops = planned.seconds or 0.0, 2.0 * sum(multiply_adds(c.anchor) for c in region.composites)
        self._ctx.kernels.setdefault(kernel, Kernel(kernel, f"offload:{backend.name}", estimate=estimate, flops=flops))


def _members(planned: Planned) -> list[str]:
    return [operation.result.name for c in planned.region.composites for operation in (c.anchor, *c.epilogue)]


def _reordered(mod: IRModule, partition: Partition) -> IRModule:
    """`main` with the members of each region side by side, after all that they read."""
    if not partition.planned:
        return mod
    main, rank = mod["main"], {name: index for index, name in enumerate(partition.order)}
    blocks = [type(block)(sorted(block.bindings, key=lambda b: rank[b.var.name])) for block in main.body.blocks]
    return with_main(mod, with_body(main, relax.SeqExpr(blocks, main.body.body)))


def _places(view: RelaxView, partition: Partition, ctx: CompileContext) -> dict[str, tuple[str, str]]:
    """Where each ONNX node runs, and why."""
    places: dict[str, tuple[str, str]] = {}
    for planned in partition.planned:
        reason = "whatever it takes" if planned.seconds is None else f"{planned.seconds * 1e6:.1f} us"
        reason += f" there, {planned.host_seconds * 1e6:.1f} us on the CPU"
        for composite in planned.region.composites:
            for node in composite.nodes:
                places.setdefault(node, (planned.region.name, f"{composite.pattern}; region: {reason}"))
    for name in view.bindings:
        if not partition.planned or name in partition.live:
            for node in view.nodes(name):
                places.setdefault(node, (CPU, partition.refusals.get(name, "")))
    for node, owner in ctx.ownership.gone.items():
        places.setdefault(node, (COMPILE_TIME, f"{owner.name}: {owner.reason}"))
    return {node: places.get(node, (COMPILE_TIME, "nothing needs it")) for node in (ctx.ownership.types or places)}


class _Host:
    """What composites would take on the CPU: of each alone, the kernels that passes and recipes would make of it."""

    def __init__(self, view: RelaxView, ctx: CompileContext) -> None:
        self._view, self._ctx = view, ctx
        self._known: dict[str, float] = {}

    def seconds(self, composite: Composite) -> float:
        """Estimated seconds of a composite."""
        name = composite.result.name
        if name not in self._known:
            bindings = [self._view.bindings[operation.result.name] for operation in composite.operations]
            self._known[name] = self._estimate(bindings)
        return self._known[name]

    def _estimate(self, members: list[relax.VarBinding]) -> float:
        function, _ = grouped_function("", members, constants=False)
        main = relax.Function(function.params, function.body, function.ret_ty).with_attr("global_symbol", "main")
        mod, ctx = IRModule({"main": main}), CompileContext(self._ctx.machine, self._ctx.options)
        for step in (PrepareStorage(), GroupOperations()):
            mod = step.run(mod, ctx).mod
        rest = sum(flops_of_call(binding.value) for binding in bindings_of(mod["main"]))
        groups = (Group(gvar.name_hint, grouped) for gvar, grouped in iter_groups(mod))
        return rest / _GENERIC_FLOPS + sum(_seconds(group, ctx) for group in groups)


def _seconds(group: Group, ctx: CompileContext) -> float:
    """Estimated seconds of a kernel."""
    plan = least_cost(allowed_matches(group, ctx), ctx.machine)
    return plan.cost if plan is not None and math.isfinite(plan.cost) else flops_of(group) / _GENERIC_FLOPS
