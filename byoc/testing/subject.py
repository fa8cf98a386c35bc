"""The back end under test: compiles the kit's models for it, each once, and knows the regions that were made."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tvm_ext

from ...core.sample_inputs import seeded_inputs
from ...runtime.model import CompiledModel
from ...verification.reference import run_reference
from ...verification.verify import VerifyReport, report_of
from ..backend import Backend, Lowered
from ..region import Region
from ..registry import register
from .case import need
from .graphs import KitModel

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Subject:
    """A back end, its options, and the models it is checked on.

    Attributes:
        backend: under test.
        options: `offload_options` that every compile gets.
        models: those that say something about it.
    """

    backend: Backend
    options: Mapping[str, Any]
    models: Sequence[KitModel]

    @functools.cache  # noqa: B019  (a subject lives as long as its cases)
    def compiled(self, model: KitModel) -> CompiledModel:
        """A model with all of it offloaded that the back end takes."""
        return self.compile(model)

    def compile(self, model: KitModel, backend: Backend | None = None, **general: Any) -> CompiledModel:
        """A model, compiled now.

        Args:
            model: of the kit.
            backend: a changed one; the one under test is registered again afterwards.
            **general: further `offload_options`.
        """
        recording = replace(backend or self.backend, lower=self._lower)
        options = {"when": "always", **self.options, **general}
        try:
            return tvm_ext.compile(model.proto, offload=recording, offload_options=options, **model.compile_options)
        finally:
            register(self.backend)

    @functools.cached_property
    def _regions(self) -> dict[bytes, Region]:
        return {}

    def _lower(self, region: Region, options: Any) -> Lowered:
        lowered = self.backend.lower(region, options)
        if isinstance(lowered, Lowered) and isinstance(lowered.program, bytes):
            self._regions[lowered.program] = region
        return lowered

    def regions(self, model: KitModel) -> Iterator[tuple[Region, bytes]]:
        """The regions of a compiled model, with their programs."""
        for program in self.compiled(model).offload_programs().values():
            yield self._regions[program], program

    @functools.cached_property
    def main(self) -> KitModel:
        """The model of which most is offloaded, its shapes static.

        Raises:
            UnexpectedError: nothing of any model is offloaded.
        """
        model = max((m for m in self.models if not m.specialize), key=self._offloaded, default=None)
        need(model is not None and self._offloaded(model) > 0, "no model of the kit is offloaded, not even in part")
        assert model is not None
        return model

    def _offloaded(self, model: KitModel) -> int:
        try:
            return len(self.compiled(model).offload_report().offloaded)
        except Exception:  # the check of its numbers says what is wrong with it
            return 0


def feeds_of(compiled: CompiledModel, seed: int = 0, batch: int = 1) -> Arrays:
    """Seeded inputs of a model."""
    return seeded_inputs(compiled.inputs, seed, batch)


def reference(model: KitModel, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs of onnxruntime without graph optimizations, which change how quantized models round."""
    return run_reference(model.proto, feeds, optimized=False)[0]


def compared(outputs: Arrays, feeds: Arrays, model: KitModel) -> VerifyReport:
    """Outputs against those of onnxruntime."""
    return report_of(outputs, reference(model, feeds), "onnxruntime", None, model.tolerance)


def faults(report: VerifyReport) -> str:
    """What disagrees; "" if nothing does."""
    return "; ".join([*report.problems, *(f"output {o.name!r}: {o.reason}" for o in report.outputs if not o.ok)])


def same_bits(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    """Whether two sets of outputs are equal, NaN included."""
    return first.keys() == second.keys() and all(first[n].tobytes() == second[n].tobytes() for n in first)
