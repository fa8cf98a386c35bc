"""Dead code elimination: what nothing needs is not computed."""

from tvm import relax
from tvm.ir import IRModule

from ...core.graph.ownership import Role
from ...core.graph.relax_graph import main_bindings, op_name
from ...core.passes import CompileContext, Event, Pass, PassResult
from ..conditions import no_dead_bindings


class EliminateDeadCode(Pass):
    """Remove bindings that neither the result nor an effect depends on, and functions that nothing calls.

    Before::

        bn = R.nn.batch_norm(x, ...)
        y = bn[0]
        mean = bn[1]                            # never read

    After::

        bn = R.nn.batch_norm(x, ...)
        y = bn[0]

    Calls with effects outside dataflow blocks stay. What is dead is TVM's own analysis
    (`relax.transform.DeadCodeElimination`); this pass says by name what went.
    """

    name = "eliminate-dead-code"
    role = Role.TELLS_NOTHING
    ensures = (no_dead_bindings,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        after = relax.transform.DeadCodeElimination(["main"])(mod)
        if ctx.offload is not None:
            calls = [b.value for b in main_bindings(after) if op_name(b.value) == "relax.call_tir"]
            ctx.offload.keep([operand for call in calls for operand in call.args[1].fields])
        fired = _removed_bindings(mod, after, ctx) + _removed_functions(mod, after)
        return PassResult(after if fired else mod, tuple(fired))


def _removed_bindings(before: IRModule, after: IRModule, ctx: CompileContext) -> list[Event]:
    """One event for each model node with dead variables (a node may have made several)."""
    kept = {b.var.name for b in main_bindings(after)}
    dead: dict[str, list[str]] = {}
    for binding in main_bindings(before):
        name = binding.var.name
        if name not in kept:
            dead.setdefault(", ".join(ctx.provenance.of(name)) or name, []).append(name)
    return [Event(label, f"nothing needs {', '.join(names)}", tuple(names)) for label, names in dead.items()]


def _removed_functions(before: IRModule, after: IRModule) -> list[Event]:
    kept = {gvar.name_hint for gvar in after.get_global_vars()}
    gone = [gvar.name_hint for gvar in before.get_global_vars() if gvar.name_hint not in kept]
    return [Event(name, "nothing calls this function") for name in gone]
