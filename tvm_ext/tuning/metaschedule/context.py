"""A tuning context of MetaSchedule, its design space and its log, without what TVM's constructor imports.

`TuneContext.__init__` imports every tensor intrinsic that TVM has for CUDA, ROCm and Hexagon: 22 to 31 seconds. The
object itself needs none of them, nor do the rules for CPUs that are used here (kind "llvm").

The log goes to a file: MetaSchedule prints every module it cannot build, and clears the output of notebooks.
"""

import contextlib
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext, _ffi_api
from tvm.s_tir.meta_schedule.mutator import MutateTileSize, PyMutator
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply, ScheduleFn
from tvm.s_tir.schedule import Trace

from ...core.machine import Machine, available_cores
from .designs import Design, NoDesign

#: TVM's loggers, of its task scheduler and its cost model among others; those of single kernels are below it.
_LOGGER = "tvm.s_tir.meta_schedule"
_IPYTHON = "s_tir.meta_schedule.using_ipython"
#: How often a mutation changes tile sizes, and how often a categorical decision.
_TILES, _CATEGORIES = 0.8, 0.2


@derived_object
class MutateCategorical(PyMutator):
    """One `sample_categorical` decision of a trace becomes another one, by the probabilities of its candidates.

    TVM's mutators for CPUs change tile sizes, unrolling and parallel loops only.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._seed = seed
        self._random = random.Random(seed)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Nothing of the context is needed."""

    def apply(self, trace: Trace, _: Any) -> Trace | None:
        """The trace with one decision changed; None if it has none that can be."""
        choices = [inst for inst in trace.insts if inst.kind.name == "SampleCategorical" and len(inst.attrs[0]) > 1]
        if not choices:
            return None
        inst = self._random.choice(choices)
        old = int(trace.get_decision(inst))
        weights = [0.0 if i == old else float(p) for i, p in enumerate(inst.attrs[1])]
        (new,) = self._random.choices(range(len(weights)), weights)
        return trace.with_decision(inst, new, remove_postproc=True)

    def clone(self) -> Any:
        """A mutator that draws the same numbers."""
        return MutateCategorical(self._seed)


def space_of(designs: Sequence[Design], seed: int) -> Any:
    """A space generator: one schedule a design that the kernel has; without designs, MetaSchedule's rules for CPUs."""
    if not designs:
        return PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")

    def generate(sch: Schedule) -> list[Schedule]:
        schedules = []
        for design in designs:
            with contextlib.suppress(NoDesign):
                schedules.append(design(sch.copy()))
        return schedules

    mutators = {MutateTileSize(): _TILES, MutateCategorical(seed): _CATEGORIES}
    return ScheduleFn(generate, sch_rules=[], postprocs=[], mutator_probs=mutators)


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


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """While this is open, all that MetaSchedule says is appended to a file, and nothing is printed."""
    logger = logging.getLogger(_LOGGER)
    before = logger.level, logger.propagate, logger.handlers[:]
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers = False, [handler]
    ipython = tvm_ffi.get_global_func(_IPYTHON)
    tvm_ffi.register_global_func(_IPYTHON, lambda: False, override=True)  # else it prints tables there, by pandas
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_IPYTHON, ipython, override=True)
        logger.level, logger.propagate, logger.handlers = before
        handler.close()


def log_function(kernel: str) -> Callable[[int, str, int, str], None]:
    """What TVM calls to log something about a kernel: (level, file, line, message)."""
    logger = logging.getLogger(f"{_LOGGER}.kernel")

    def log(level: int, _file: str, _line: int, message: str) -> None:
        if level >= 0:
            logger.log(level, "%s: %s", kernel, message)

    return log
