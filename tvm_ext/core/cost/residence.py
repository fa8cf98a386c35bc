"""Residence: where a call of a model finds the weights of its kernels, which the whole model's weights decide.

A kernel alone finds its weights where it left them. In a model all other weights, and the activations, pass through the
caches between two calls of it: what counts is whether all of them fit together.
"""

from tvm.ir import GenericConst, IRModule

from ..graph.relax_graph import iter_groups, main_bindings, with_functions
from ..group import WEIGHTS_BYTES, WEIGHTS_IN, Group
from ..machine import Machine
from .estimate import level_of
from .work import bytes_of

#: Of L3, what a thread may count on at most: a virtual machine reports the L3 of a whole processor, which it shares.
_L3_A_THREAD = 16 << 20


def weights_level(nbytes: int, machine: Machine) -> str:
    """The level of the memory hierarchy that keeps the weights of a model from call to call: "l2", "l3" or "memory".

    Args:
        nbytes: of all weights.
    """
    level = level_of(nbytes, machine)
    if level == "l3" and nbytes > _L3_A_THREAD * machine.threads:
        return "memory"
    return "l2" if level == "l1" else level


def level_of_expanded(group: Group, expansion: float, machine: Machine) -> str:
    """Where a call of a group finds its weights, if packing makes all of the model so many times as large."""
    return weights_level(int(expansion * group.weights_bytes), machine) if group.weights_bytes else group.weights_in


def with_residence(mod: IRModule, machine: Machine) -> IRModule:
    """The module with an attribute on each grouped function: where its weights are found, if not in memory."""
    constants = {c for b in main_bindings(mod) for c in getattr(b.value, "args", ()) if isinstance(c, GenericConst)}
    nbytes = sum(bytes_of(constant) for constant in constants)
    level = weights_level(nbytes, machine)
    if level == "memory":
        return mod
    attrs = {WEIGHTS_IN: level, WEIGHTS_BYTES: nbytes}
    return with_functions(mod, {g.name_hint: group.with_attr(attrs) for g, group in iter_groups(mod)})
