"""Workspace: what kernels need for themselves is allocated by `main`, beside its activations.

y = alloc(); k(x, y)   ->   t = alloc(); y = alloc(); k(x, t, y)
"""

from collections.abc import Mapping
from typing import Any

from tvm import relax
from tvm.ir import Call, GlobalVar, IRModule

from ...core.graph.nodes import kernels_of
from ...core.graph.relax_graph import bindings_of, op_name, with_body, with_functions
from ...core.passes import CompileContext, Event, Pass, PassResult
from ..tir.buffers import Kernel, with_workspace
from .arena import WORKSPACE, Pooled

#: Attribute of a kernel: how many of its last parameters are outputs.
OUTPUTS = "tvm_ext.outputs"


class PlaceWorkspace(Pass):
    """Large buffers that kernels need for themselves are allocated by `main`; small ones are on the stack."""

    name = "place-workspace"
    needed = "a kernel whose buffers have no place takes them from TVM's pool in every run"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        kernels = kernels_with_workspace(mod)
        builder = relax.BlockBuilder()
        added = {name: builder.add_func(kernel.function, name) for name, kernel in kernels.items()}
        calls = {mod.get_global_var(name): (added[name], kernel) for name, kernel in kernels.items()}
        builder.add_func(_with_allocations(mod["main"], calls), "main")
        moved = ((name, len(kernel.workspace)) for name, kernel in kernels.items() if kernel.workspace)
        fired = tuple(Event(name, f"{count} buffers are arguments") for name, count in moved)
        facts = Pooled({name: kernel.pooled for name, kernel in kernels.items()})
        return PassResult(builder.get(), fired, facts=(facts,))


class CountOutputs(Pass):
    """Each kernel says how many of its last parameters are outputs; calls in place do not tell any more."""

    name = "count-outputs"
    needed = "workspace stands before the outputs"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        outputs, kernels = _outputs(mod["main"]), kernels_of(mod).items()
        said = {name: kernel.with_attr(OUTPUTS, outputs.get(name, 1)) for name, kernel in kernels}
        return PassResult(with_functions(mod, said))


def kernels_with_workspace(mod: IRModule) -> dict[str, Kernel]:
    """Kernels after the first half of their lowering as they are compiled, by name."""
    return {name: with_workspace(kernel, int(kernel.attrs[OUTPUTS])) for name, kernel in kernels_of(mod).items()}


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
    count = 0
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
                memory.append(_allocated(param, f"{WORKSPACE}{count}", bindings))
                count += 1
            args = [*value.args[: kernel.place], *memory, *value.args[kernel.place :]]
            call = Call(gvar, args, value.attrs, value.ty_args, ret_ty=value.ty)
            bindings.append(relax.VarBinding(binding.var, call))
        blocks.append(relax.BindingBlock(bindings))
    return with_body(function, relax.SeqExpr(blocks, function.body.body))


def _allocated(param: Any, name: str, bindings: list[Any]) -> relax.Var:
    """Append the allocation of one parameter to the bindings."""
    shape, dtype = relax.ShapeExpr([int(d) for d in param.ty.shape]), str(param.ty.dtype)
    var = relax.Var(name, relax.TensorType(shape, dtype))
    bindings.append(relax.VarBinding(var, relax.op.builtin.alloc_tensor(shape, dtype, 0)))
    return var
