"""A safe schedule for kernels that no recipe made: outer loops on threads.

It is right for any TIR function TVM's own passes produce, and no more than that: reports name each kernel that ends
here, because it is slow.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_ext.core.cost.estimate import vector_threads
from tvm_ext.core.errors import essence
from tvm_ext.core.machine import Machine

from .scalars.strict_floats import strict
from .steps.empty_reductions import started
from .steps.loops import parallel_rows

NAME = "generic"
_SPATIAL = 0


def schedule(function: tirx.PrimFunc, machine: Machine) -> tuple[tirx.PrimFunc, str]:
    """Schedule what can be.

    Returns:
        The function, and what was done: "parallel", "serial" (there is too little work to wake threads for), or
        "none: " and the reason.
    """
    function = started(strict(_serial(function)))
    if function.attrs and "tirx.is_scheduled" in function.attrs:
        return function, "none: already scheduled"
    if not isinstance(function.body, SBlockRealize) or function.body.block.name_hint != "root":
        return function, "none: loops that TVM wrote by hand"
    try:
        sch = Schedule(function)
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
        parallel = [_block(sch, block, machine) for block in blocks]
        how = "parallel" if any(parallel) else "serial"
        return sch.mod["main"].without_attr("global_symbol"), how
    except (ScheduleError, ValueError, TypeError) as error:
        return function, f"none: {essence(error)}"


def _serial(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with no parallel loop.

    Kernels that TVM wrote by hand (scans, scatters) share their rows among all cores of the machine that runs them,
    not among the threads the model is compiled for.
    """

    def serial(loop: tirx.For) -> tirx.For:
        if int(loop.kind) != int(tirx.ForKind.PARALLEL):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, serial)))


def _block(sch: Schedule, block: Any, machine: Machine) -> bool:
    """The leading spatial loops of one block on threads, if there is work enough; whether they are."""
    loops = sch.get_loops(block)
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    extents = [sch.get(loop).extent for loop in loops]
    if len(kinds) != len(loops) or not all(isinstance(e, tirx.IntImm) for e in extents):
        return False
    spatial = [
        loop for loop, _ in itertools.takewhile(lambda pair: pair[1] == _SPATIAL, zip(loops, kinds, strict=True))
    ]
    steps = math.prod(int(e) for e in extents)
    threads = vector_threads(steps * machine.lanes, machine)  # these loops take one element a step
    if threads == 1 or math.prod(int(sch.get(loop).extent) for loop in spatial) < 2:
        return False
    parallel_rows(sch, spatial, threads)
    return True
