"""The end of the generic way: kernels that TVM's passes made of what no recipe took are scheduled safely.

By :mod:`tvm_ext.schedules.generic`, which only runs outer loops on threads. A reshape is no kernel: it is another shape
of the same memory.
"""

from tvm.ir import IRModule

from tvm_ext.core.graph.ownership import Role
from tvm_ext.core.graph.relax_graph import main_bindings, op_name, with_functions
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Kernel
from tvm_ext.schedules import generic

from ...core.graph.nodes import kernels_of
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
        kernels, fired = {}, _views(mod, ctx)
        for name, kernel in kernels_of(mod).items():
            if name in ctx.kernels:
                continue
            kernels[name], how = generic.schedule(kernel, ctx.machine)
            reason = ctx.why_skipped(ChooseRecipes, value=name) or "no recipe for this operation"
            ctx.kernels[name] = Kernel(name, generic.NAME, {"schedule": how}, reason)
            fired.append(Event(name, f"generic schedule ({how}): {reason}"))
        return PassResult(with_functions(mod, kernels), tuple(fired))


def _views(mod: IRModule, ctx: CompileContext) -> list[Event]:
    """What is said of reshapes: they cost nothing at run time."""
    names = [b.var.name for b in main_bindings(mod) if op_name(b.value) == "relax.reshape"]
    return [Event(", ".join(ctx.provenance.of(name)) or name, "another shape of the same memory") for name in names]
