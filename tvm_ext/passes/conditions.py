"""Conditions that passes state about a module, before and after they run.

A condition takes a module and returns None if the module is fine, else what is wrong with it
(:data:`tvm_ext.core.passes.Condition`). :func:`well_formed` walks everything and takes tens of milliseconds on a
model of some size, so it belongs at the end of a group of passes; the others are cheap.
"""

from tvm import relax
from tvm.ir import IRModule

from ..core.errors import essence
from ..core.graph.relax_graph import main_bindings, op_name
from .steps.liveness import live_variables


def well_formed(mod: IRModule) -> str | None:
    """Variables are defined before they are read, every expression has a type, bodies are in normal form."""
    try:
        relax.analysis.well_formed(mod)
    except Exception as error:
        return essence(error)
    return None


def unique_names(mod: IRModule) -> str | None:
    """No two variables of `main` share a name (provenance goes by name)."""
    seen: set[str] = set()
    for var in [*mod["main"].params, *(b.var for b in main_bindings(mod))]:
        if var.name in seen:
            return f"two variables are called {var.name!r}"
        seen.add(var.name)
    return None


def no_dead_bindings(mod: IRModule) -> str | None:
    """Every binding of `main` is needed for its result."""
    live = live_variables(mod["main"])
    dead = [b.var.name for b in main_bindings(mod) if b.var not in live]
    return f"nothing needs {', '.join(dead[:5])}{' ...' if len(dead) > 5 else ''}" if dead else None


def no_inference_batch_norm(mod: IRModule) -> str | None:
    """No batch normalization in inference mode is left in `main`."""
    for binding in main_bindings(mod):
        if op_name(binding.value) == "relax.nn.batch_norm" and not binding.value.attrs.training:
            return f"{binding.var.name} is one"
    return None
