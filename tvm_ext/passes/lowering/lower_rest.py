"""The end of the generic way: kernels that TVM's passes made of what no recipe took are scheduled safely.

By :mod:`tvm_ext.schedules.generic`, which only runs outer loops on threads. A reshape is no kernel: it is another shape
of the same memory.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import IRModule

from tvm_ext.core.graph.ownership import Role
from tvm_ext.core.graph.relax_graph import main_bindings, op_name
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Kernel
from tvm_ext.schedules import generic

from ..conditions import unique_names
from .choose_recipes import ChooseRecipes


class LowerRest(Pass):
    """Schedule kernels without a recipe; name each with the reason."""

    name = "lower-rest"
    stage = "scheduled"
    role = Role.LEAVES_VIEWS
    needed = "it makes a kernel of whatever has none"
    ensures = (unique_names,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        out, fired = IRModule(dict(mod.functions_items()), attrs=mod.attrs), _views(mod, ctx)
        for gvar, function in mod.functions_items():
            if not isinstance(function, tirx.PrimFunc) or gvar.name_hint in ctx.kernels:
                continue
            scheduled, how = generic.schedule(function, ctx.machine)
            out.update_func(gvar, scheduled)
            reason = ctx.why_skipped(ChooseRecipes, value=gvar.name_hint) or "no recipe for this operation"
            ctx.kernels[gvar.name_hint] = Kernel(gvar.name_hint, generic.NAME, {"schedule": how}, reason)
            fired.append(Event(gvar.name_hint, f"generic schedule ({how}): {reason}"))
        return PassResult(out, tuple(fired))


def _views(mod: IRModule, ctx: CompileContext) -> list[Event]:
    """What is said of reshapes: they cost nothing at run time."""
    names = [b.var.name for b in main_bindings(mod) if op_name(b.value) == "relax.reshape"]
    return [Event(", ".join(ctx.provenance.of(name)) or name, "another shape of the same memory") for name in names]
