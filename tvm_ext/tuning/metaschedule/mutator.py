"""A mutator of categorical decisions. TVM's mutators for CPUs change tile sizes, unrolling and parallel loops only."""

from __future__ import annotations

import random
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.mutator import PyMutator
from tvm.s_tir.schedule import Trace


@derived_object
class MutateCategorical(PyMutator):
    """One `sample_categorical` decision of a trace becomes another one, by the probabilities of its candidates."""

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
