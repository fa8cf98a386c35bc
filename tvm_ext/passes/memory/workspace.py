"""Workspace: what kernels need for themselves is allocated by `main`, beside its activations.

y = alloc(); k(x, y)   ->   t = alloc(); y = alloc(); k(x, t, y)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule

from ...core.graph.relax_graph import bindings_of, op_name
from ...core.machine import Machine
from ...core.plan import Kernel as Named
from ..tir.loops import Kernel, lower_to_loops, with_workspace
from ..tir.shares import on_all_cores
from .placement import WORKSPACE


def with_workspace_of_kernels(
    mod: IRModule, entry: str, machine: Machine, known: Mapping[str, Named] | None = None
) -> tuple[IRModule, dict[str, int]]:  # fmt: skip
    """The module in destination-passing style, its kernels lowered to loops, their workspace allocated by `entry`.

    Args:
        mod: what the pipeline made: `entry` calls scheduled kernels by call_tir.
        machine: whose target they are compiled for.
        known: of the kernels, by name, for messages.

    Raises:
        BuildError: a kernel cannot be lowered; names it.

    Returns:
        The module, and for each kernel the bytes that its threads still take from TVM's pools.
    """
    lowered = kernels_with_workspace(mod, entry, machine, known)
    function = in_destination_style()(mod)[entry]
    builder = relax.BlockBuilder()
    calls = {
        mod.get_global_var(name): (builder.add_func(kernel.function, name), kernel) for name, kernel in lowered.items()
    }
    builder.add_func(_with_allocations(function, calls), entry)
    return builder.get(), {name: kernel.pooled for name, kernel in lowered.items()}


def kernels_with_workspace(
    mod: IRModule, entry: str, machine: Machine, known: Mapping[str, Named] | None = None
) -> dict[str, Kernel]:  # fmt: skip
    """Kernels as they are compiled, by name."""
    outputs = _outputs(mod[entry])

    def lower(share: Mapping[str, tirx.PrimFunc], scheduled: bool, _: int) -> dict[str, tirx.PrimFunc]:
        return lower_to_loops(share, machine.target(scheduled=scheduled))

    lowered = [pair for part in on_all_cores(mod, lower, known or {}) for pair in part.items()]
    return {name: with_workspace(function, outputs.get(name, 1)) for name, function in lowered}


def _outputs(function: relax.Function) -> dict[str, int]:
    """Kernel -> how many tensors it writes."""
    calls = [b.value for b in bindings_of(function) if op_name(b.value) == "relax.call_tir"]
    types = {call.args[0].name_hint: call.ty_args[0] for call in calls}
    return {name: len(ty.fields) if isinstance(ty, relax.TupleType) else 1 for name, ty in types.items()}


def _with_allocations(
    function: relax.Function, kernels: Mapping[GlobalVar, tuple[GlobalVar, Kernel]]
) -> relax.Function:
    """A function in destination-passing style whose calls give kernels their workspace.

    Args:
        function: calls kernels as they were, without workspace.
        kernels: what it calls -> what to call.
    """
    blocks = []
    made = 0
    for block in function.body.blocks:
        bindings: list[Any] = []
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if not (isinstance(value, Call) and value.op in kernels):
                bindings.append(binding)
                continue
            gvar, kernel = kernels[value.op]
            memory = []
            for param in kernel.workspace:
                memory.append(_allocated(param, f"{WORKSPACE}{made}", bindings))
                made += 1
            args = [*value.args[: kernel.place], *memory, *value.args[kernel.place :]]
            call = Call(gvar, args, value.attrs, value.ty_args, ret_ty=value.ty)
            bindings.append(relax.VarBinding(binding.var, call))
        blocks.append(relax.BindingBlock(bindings))
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _allocated(param: Any, name: str, bindings: list[Any]) -> relax.Var:
    """Append the allocation of one parameter to the bindings."""
    shape, dtype = relax.ShapeExpr([int(d) for d in param.ty.shape]), str(param.ty.dtype)
    var = relax.Var(name, relax.TensorType(shape, dtype))
    bindings.append(relax.VarBinding(var, relax.op.builtin.alloc_tensor(shape, dtype, 0)))
    return var


def in_destination_style() -> tvm.transform.Pass:
    """Calls of kernels take the memory of their results, and functions allocate it."""
    t = relax.transform
    return tvm.transform.Sequential([t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite()])
