"""Layouts: every planned group becomes a kernel on physical tensors; transforms stand only where neighbours disagree.

    y = conv2d_add_relu(x, w, b)   ->   y = call_tir(conv2d_add_relu, (x, packed w, blocked b), NCHW8c)

Values are visited in order and keep the layout their producer gave them. A kernel is offered the layouts its inputs
have; pooling, elementwise kernels and reductions take what they are offered, so no transform is placed only to be
undone by the next one. A transpose moves nothing: its result is the same memory in another layout. A value that two
consumers need in the same other layout is transformed once. Constants are packed here, in numpy.
"""

import concurrent.futures
import functools
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import DROP, Rewriter, array_of, dtype_of, op_name, shape_of, static_tensor
from tvm_ext.core.group import CONFIG, OPAQUE, RECIPE
from tvm_ext.core.layout import Layout
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.core.plan import Kernel, Plan
from tvm_ext.core.recipe import Layouts
from tvm_ext.runtime.memory.arrays import zero_copy
from tvm_ext.schedules.recipes import layout_transform


def interface(*types: tuple[tuple[int, ...], str]) -> tirx.PrimFunc:
    """A kernel with parameters of these shapes and dtypes, and no body."""
    params = [tirx.decl_buffer(shape, dtype, f"p{number}") for number, (shape, dtype) in enumerate(types)]
    return tirx.PrimFunc(params, tirx.Evaluate(0)).with_attr("tirx.noalias", True)


def _pack_into(tensor: tvm.runtime.Tensor, value: GenericConst, layout: Layout) -> None:
    packed = layout.pack(array_of(value))
    if zero_copy(packed.dtype, packed.shape):
        np.copyto(np.from_dlpack(tensor), packed)
    else:
        tensor.copyfrom(packed)


class AssignLayouts(Pass):
    """Forward assignment of layouts; emits kernels that are not scheduled yet.

    Args:
        interfaces: kernels have parameters and no body, and packed constants no values: of a program that tells only
            how shapes depend on the sizes of a model.
    """

    name = "assign-layouts"
    stage = "layout"
    needed = "it makes the kernels that recipes chose: switch recipes off instead"

    def __init__(self, interfaces: bool = False) -> None:
        self._interfaces = interfaces

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rewriter = Rewriter(mod, ctx)
        # Weights are packed while this thread goes on to schedule: numpy works without Python's lock.
        packer = concurrent.futures.ThreadPoolExecutor(1, "tvm_ext-pack")
        try:
            result = rewriter.rewrite(_Assigner(rewriter, ctx, packer, self._interfaces).visit)
        finally:
            packer.shutdown(wait=False)
        return PassResult(relax.transform.DeadCodeElimination()(result.mod), result.fired, result.skipped)


class _Assigner:
    def __init__(
        self, rewriter: Rewriter, ctx: CompileContext, packer: concurrent.futures.Executor, interfaces: bool
    ) -> None:
        self._rw, self._ctx, self._packer, self._interfaces = rewriter, ctx, packer, interfaces
        self._layout: dict[relax.Var, Layout] = {}
        self._in: dict[tuple[relax.Var, Layout], relax.Var] = {}
        self._kernels: dict[tuple[str, Layouts], GlobalVar] = {}
        self._transforms: dict[tuple[tuple[int, ...], str, Layout, Layout], GlobalVar] = {}
        self._packed: dict[tuple[GenericConst, Layout], GenericConst] = {}
        self._alike: dict[tuple[Layout, tuple[int, ...], str, bytes], list[GenericConst]] = {}
        self._aware = {var for var, value in rewriter.defs.items() if self._plan(value) or self._is_transpose(value)}

    def _plan(self, value: Any) -> Plan | None:
        called = isinstance(value, Call) and isinstance(value.op, GlobalVar)
        return self._ctx.plans.get(value.op.name_hint) if called else None

    def visit(self, binding: relax.VarBinding, rw: Rewriter) -> Any:
        """Replace a planned call; anything else reads and makes plain layouts, and stays."""
        plan = self._plan(binding.value)
        if plan is None:
            return self._transpose(binding) if self._is_transpose(binding.value) else None
        offered = [self._layout.get(a, Layout.plain(len(shape_of(a) or ()))) for a in binding.value.args]
        layouts = plan.recipe.layouts(plan.match, plan.config, offered)
        args = [self._argument(a, layout) for a, layout in zip(binding.value.args, layouts.params, strict=True)]
        gvar = self._kernel(binding, plan, layouts)
        shape, dtype = shape_of(binding.var) or (), dtype_of(binding.var)
        call = relax.call_tir(gvar, args, relax.TensorType(layouts.output.physical_shape(shape), dtype))
        rw.fire(f"{plan.recipe.name}: {layouts}")
        if layouts.output.is_plain:
            return call
        physical = rw.emit(call)
        self._say(physical, binding.var, layouts.output)
        return self._keep(binding.var, layouts.output, physical)

    def _keep(self, var: relax.Var, layout: Layout, physical: relax.Var) -> Any:
        """Note that `var` lies in `layout`; bind it plainly only if something reads it that is no kernel of ours."""
        self._layout[var] = layout
        self._in[var, layout] = physical
        if all(reader in self._aware for reader in self._rw.uses.get(var, [])):
            return DROP
        return self._transform(var, layout, Layout.plain(len(layout.order)))

    @staticmethod
    def _is_transpose(value: Any) -> bool:
        """A transpose of a tensor that is computed: no kernel for itself, but another reading of the same memory."""
        return op_name(value) == "relax.permute_dims" and isinstance(value.args[0], relax.Var) and static_tensor(value)

    def _transpose(self, binding: relax.VarBinding) -> Any:
        source, stated = binding.value.args[0], binding.value.attrs.axes
        rank = len(shape_of(source) or ())
        axes = [int(a) % rank for a in stated] if stated is not None else list(reversed(range(rank)))
        own = self._layout.get(source, Layout.plain(rank))
        layout, physical = own.permuted(axes), self._in.get((source, own), source)
        if layout.is_plain:
            self._rw.fire(f"transposing {own} gives what the next operation reads")
            return physical
        self._rw.fire(f"another reading of the same memory: {own} is {layout}")
        return self._keep(binding.var, layout, physical)

    def _argument(self, value: Any, layout: Layout) -> Any:
        """`value` in `layout`: packed if it is constant, transformed (once) if it lies otherwise."""
        if isinstance(value, GenericConst):
            return value if layout.is_plain else self._pack(value, layout)
        own = self._layout.get(value, Layout.plain(len(shape_of(value) or ())))
        if own == layout:
            return self._in.get((value, own), value)
        if (value, layout) not in self._in:
            physical = self._rw.emit(self._transform(value, own, layout), value.name)
            self._in[value, layout] = physical
            self._say(physical, value, layout)
        return self._in[value, layout]

    def _say(self, physical: relax.Var, value: relax.Var, layout: Layout) -> None:
        """Note that the new variable `physical` is `value` in a layout."""
        provenance = self._ctx.provenance
        provenance.place(physical.name, layout, shape_of(value) or ())
        provenance.add_held(physical.name, provenance.held(value.name))

    def _pack(self, value: GenericConst, layout: Layout) -> GenericConst:
        if (known := self._packed.get((value, layout))) is not None:
            return known
        array = array_of(value)
        alike = self._alike.setdefault((layout, array.shape, str(array.dtype), array.ravel()[:16].tobytes()), [])
        for source in alike:  # the same bytes: an embedding, and the matrix that is tied to it
            if np.array_equal(array.reshape(-1).view(np.uint8), array_of(source).reshape(-1).view(np.uint8)):
                self._packed[value, layout] = self._packed[source, layout]
                return self._packed[value, layout]
        alike.append(value)
        shape, dtype = shape_of(value) or (), dtype_of(value)
        tensor = tvm.runtime.empty(layout.physical_shape(shape), layout.element_type(dtype))
        if not self._interfaces:
            self._ctx.pending.append(self._packer.submit(_pack_into, tensor, value, layout))
        self._packed[value, layout] = packed = relax.const(tensor)
        self._ctx.packed.append((packed, value, layout))
        return packed

    def _transform(self, value: relax.Var, own: Layout, layout: Layout) -> Any:
        """A call that brings `value` from its own layout to `layout`."""
        shape, dtype = shape_of(value) or (), dtype_of(value)
        self._rw.fire(f"transformed from {own} to {layout}", value)
        gvar = self._transform_kernel(shape, dtype, own, layout)
        source = self._in.get((value, own), value)
        return relax.call_tir(gvar, [source], relax.TensorType(layout.physical_shape(shape), dtype))

    def _transform_kernel(self, shape: tuple[int, ...], dtype: str, own: Layout, layout: Layout) -> GlobalVar:
        key, machine = (shape, dtype, own, layout), self._ctx.machine
        if key not in self._transforms:
            cost = functools.partial(layout_transform.cost, shape, dtype)
            name, layouts, schedule = layout_transform.NAME, f"{own} -> {layout}", layout_transform.schedule
            config = {"threads": layout_transform.threads_for(shape, dtype, machine)}
            kernel = Kernel(name, name, config, "", layouts, estimate=cost(machine), schedule=schedule, cost=cost)
            types = ((own.physical_shape(shape), dtype), (layout.physical_shape(shape), dtype))
            function = interface(*types) if self._interfaces else layout_transform.compute(*key, machine)
            self._transforms[key] = self._add(function, kernel)
        return self._transforms[key]

    def _kernel(self, binding: relax.VarBinding, plan: Plan, layouts: Layouts) -> GlobalVar:
        group = binding.value.op.name_hint
        if (group, layouts) not in self._kernels:
            name, machine = group.removeprefix("fused_"), self._ctx.machine
            schedule = functools.partial(plan.recipe.schedule, match=plan.match, config=plan.config, machine=machine)
            record = (plan.record.session or "of no session") if plan.record else ""
            kernel = Kernel(
                name, plan.recipe.name, plan.config, "", str(layouts), estimate=plan.cost, record=record,
                choice=plan.choice, schedule=schedule, plan=plan,
            )  # fmt: skip
            self._kernels[group, layouts] = self._add(self._function(plan, layouts, binding), kernel)
        return self._kernels[group, layouts]

    def _function(self, plan: Plan, layouts: Layouts, call: relax.VarBinding) -> tirx.PrimFunc:
        if not self._interfaces:
            return plan.recipe.compute(plan.match, plan.config, layouts)
        values = zip([*call.value.args, call.var], [*layouts.params, layouts.output], strict=True)
        return interface(*((how.physical_shape(shape_of(v) or ()), how.element_type(dtype_of(v))) for v, how in values))

    def _add(self, function: tirx.PrimFunc, kernel: Kernel) -> GlobalVar:
        attrs = {"op_pattern": OPAQUE, RECIPE: kernel.recipe, CONFIG: str(kernel.config)}
        gvar = self._rw.add_function(function.with_attr(attrs), kernel.name)
        kernel.name = gvar.name_hint
        self._ctx.kernels.setdefault(gvar.name_hint, kernel)
        return gvar
