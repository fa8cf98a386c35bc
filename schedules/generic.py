"""A safe schedule for kernels that no recipe made: outer loops on threads.

It is right for any TIR function TVM's own passes produce, and no more than that: reports name each kernel that ends
here, because it is slow.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_ext.core.cost.estimate import vector_threads
from tvm_ext.core.errors import essence
from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import Sizes, evaluate
from tvm_ext.ops.scalars.strict_floats import strict

from .steps.loops import bounded, parallel_largest, parallel_rows
from .steps.sizes import UncheckedSchedule, with_params

NAME = "generic"
_SPATIAL, _REDUCTION = 0, 2


def schedule(function: tirx.PrimFunc, machine: Machine, sizes: Sizes | None = None) -> tuple[tirx.PrimFunc, str]:
    """Schedule what can be.

    Args:
        function: of TVM's passes, not scheduled.
        machine: to schedule it for.
        sizes: the symbols that are free variables of its loops, as of the result's; threads are chosen at their bound.

    Returns:
        The function, and what was done: "parallel", "serial" (there is too little work to wake threads for), or
        "none: " and the reason.
    """
    function = _started(strict(_serial(function)))
    if function.attrs and "tirx.is_scheduled" in function.attrs:
        return function, "none: already scheduled"
    if not isinstance(function.body, SBlockRealize) or function.body.block.name_hint != "root":
        return function, "none: loops that TVM wrote by hand"
    try:
        sch = UncheckedSchedule(with_params(function, [*function.params, *(sizes.vars if sizes else ())]))
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
        parallel = [_block(sch, block, machine, sizes.bound if sizes else {}) for block in blocks]
        how = "parallel" if any(parallel) else "serial"
        scheduled = sch.mod["main"].without_attr("global_symbol")
        if sizes is not None:
            scheduled = bounded(with_params(scheduled, scheduled.params[: len(function.params)]))
        return scheduled, how
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


def _block(sch: Schedule, block: Any, machine: Machine, bound: Mapping[str, int]) -> bool:
    """The leading spatial loops of one block on threads, if there is work enough; whether they are."""
    loops = sch.get_loops(block)
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    if len(kinds) != len(loops):
        return False
    try:
        extents = [evaluate(sch.get(loop).extent, bound) for loop in loops]
    except (KeyError, TypeError):  # known only when it runs
        return False
    static = all(isinstance(sch.get(loop).extent, tirx.IntImm) for loop in loops)
    spatial = loops[: sum(1 for _ in itertools.takewhile(lambda kind: kind == _SPATIAL, kinds))]
    steps, rows = math.prod(extents), extents[: len(spatial)]
    threads = vector_threads(steps * machine.lanes, machine)  # these loops take one element a step
    parallel = threads > 1 and math.prod(rows) > 1
    if parallel and static:
        parallel_rows(sch, spatial, threads)
    elif parallel:
        parallel_largest(sch, spatial, rows, threads)
    if not static and sch.get(block).init is not None:
        sch.decompose_reduction(block, loops[len(spatial)])  # it starts where there is nothing to reduce, too
    return parallel


# ------------------------------------------------------------ reductions over no elements
def _started(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel, where a reduction over no elements leaves what it starts from, not what was in memory: the loops run
    zero times, and with them the start of the result.

    for i, k in grid(4, 0):              ->   for i, k in grid(4, 1):
        init: y[i] = 0                            y[i] = 0
        y[i] = y[i] + x[i, k]
    """
    empty: list[SBlockRealize] = []

    def look(realize: SBlockRealize) -> None:
        if realize.block.init is not None and any(map(_is_empty, realize.block.iter_vars)):
            empty.append(realize)

    tvm_ffi.structural_walk(function.body, (SBlockRealize, look))
    if not empty:
        return function
    blocks = {realize.block.name_hint for realize in empty}
    loops = [v for r in empty for v, i in zip(r.iter_values, r.block.iter_vars, strict=True) if _is_empty(i)]

    def loop(node: tirx.For) -> tirx.For:
        if not any(node.loop_var.same_as(var) for var in loops):
            return node
        return tirx.For(node.loop_var, node.min, tirx.const(1, node.loop_var.ty.dtype), node.kind, node.body)

    def block(node: SBlock) -> SBlock:
        return _start(node) if node.name_hint in blocks else node

    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, loop), (SBlock, block)]))


def _is_empty(variable: tirx.IterVar) -> bool:
    extent = variable.dom.extent
    return int(variable.iter_type) == _REDUCTION and isinstance(extent, tirx.IntImm) and int(extent) == 0


def _start(block: SBlock) -> SBlock:
    """A block that only writes what its reduction starts from."""
    iters = [_once(v) if _is_empty(v) else v for v in block.iter_vars]
    return SBlock(
        iters, [], block.writes, block.name_hint, block.init, None, block.alloc_buffers, block.match_buffers,
        block.annotations,
    )  # fmt: skip


def _once(variable: tirx.IterVar) -> Any:
    return tirx.IterVar(Range(0, tirx.const(1, variable.var.ty.dtype)), variable.var, variable.iter_type)
