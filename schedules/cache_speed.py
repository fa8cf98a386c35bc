"""How fast a core reads again what it read before, for cost models: conservative figures for current x86-64 cores."""

from __future__ import annotations

from tvm_ext.core.machine import Machine

#: Bytes a cycle a core streams from each level.
L2_BYTES, L3_BYTES, MEMORY_BYTES = 24.0, 10.0, 9.0


def stream(size: int, machine: Machine) -> float:
    """Bytes a cycle at which something of this size is read again and again."""
    if size <= machine.l1d * 0.6:
        return 64.0
    if size <= machine.l2 * 0.6:
        return L2_BYTES
    return L3_BYTES if size <= machine.l3 * 0.5 else MEMORY_BYTES
