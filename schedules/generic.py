"""A safe schedule for kernels that no recipe made: outer loops on threads, innermost loop in vectors where legal.

It is right for any TIR function TVM's own passes produce, and no more than that: reports name each kernel that ends
here, because it is slow.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_ext.core.machine import Machine

from .steps import parallel_rows

NAME = "generic"
_SPATIAL = 0


def schedule(function: tirx.PrimFunc, machine: Machine) -> tuple[tirx.PrimFunc, str]:
    """Schedule what can be; returns the function and what was done ("parallel", or "none" with the reason)."""
    if not function.attrs or "tirx.is_scheduled" in function.attrs:
        return function, "none: already scheduled"
    try:
        sch = Schedule(function)
        root = sch.get_sblock("root")
        for block in sch.get_child_blocks(root):
            _block(sch, block, machine)
        return sch.mod["main"].without_attr("global_symbol"), "parallel"
    except (ScheduleError, ValueError, TypeError) as error:
        return function, f"none: {str(error).strip().splitlines()[0][:120]}"


def _block(sch: Schedule, block: Any, machine: Machine) -> None:
    """The leading spatial loops of one block on threads."""
    loops = sch.get_loops(block)
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    if len(kinds) != len(loops):
        return
    spatial = []
    for loop, kind in zip(loops, kinds, strict=True):
        if kind != _SPATIAL or not isinstance(sch.get(loop).extent, tirx.IntImm):
            break
        spatial.append(loop)
    if spatial and machine.threads > 1:
        parallel_rows(sch, spatial, machine.threads)
