"""A tuning context of MetaSchedule and its design space, without what TVM's constructor imports.

`TuneContext.__init__` imports every tensor intrinsic that TVM has for CUDA, ROCm and Hexagon: 22 to 31 seconds. The
object itself needs none of them, nor do the rules for CPUs that are used here (kind "llvm").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext, _ffi_api
from tvm.s_tir.meta_schedule.mutator import MutateTileSize
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply, ScheduleFn

from ...core.machine import Machine, available_cores
from .designs import Design, NoDesign
from .logs import log_function
from .mutator import MutateCategorical

#: How often a mutation changes tile sizes, and how often a categorical decision.
_TILES, _CATEGORIES = 0.8, 0.2


def space_of(designs: Sequence[Design], seed: int) -> Any:
    """A space generator: one schedule a design that the kernel has; without designs, MetaSchedule's rules for CPUs."""
    if not designs:
        return PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")

    def generate(sch: Schedule) -> list[Schedule]:
        made = (_designed(design, sch.copy()) for design in designs)
        return [one for one in made if one is not None]

    mutators = {MutateTileSize(): _TILES, MutateCategorical(seed): _CATEGORIES}
    return ScheduleFn(generate, sch_rules=[], postprocs=[], mutator_probs=mutators)


def _designed(design: Design, sch: Schedule) -> Schedule | None:
    try:
        return design(sch)
    except NoDesign:
        return None


def context_of(name: str, mod: IRModule, machine: Machine, space: Any, strategy: Any, seed: int) -> TuneContext:
    """A context whose search runs on all cores of this process.

    Args:
        seed: 1 or more.
    """
    context = _ffi_api.TuneContext(
        mod, machine.target(), space, strategy, name, available_cores(), seed, log_function(name)
    )
    _ffi_api.TuneContextInitialize(context)
    return context
