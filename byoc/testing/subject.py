"""The back end under test: compiles the kit's models for it, each once, and knows the regions that were made."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Backend, Lowered
from ..region import Region
from ..registry import register
from .case import need
from .graphs import KitModel

if TYPE_CHECKING:
    from ...runtime.model import CompiledModel
    from ...verification.verify import VerifyReport

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
        import tvm_ext

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
        made = self.backend.lower(region, options)
        if isinstance(made, Lowered) and isinstance(made.program, bytes):
            self._regions[made.program] = region
        return made

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
        found = max((m for m in self.models if not m.specialize), key=self._offloaded, default=None)
        need(found is not None and self._offloaded(found) > 0, "no model of the kit is offloaded, not even in part")
        assert found is not None
        return found

    def _offloaded(self, model: KitModel) -> int:
        try:
            return len(self.compiled(model).offload_report().offloaded)
        except Exception:  # the check of its numbers says what is wrong with it
            return 0


def feeds_of(compiled: CompiledModel, seed: int = 0, batch: int = 1) -> Arrays:
    """Seeded inputs of a model."""
    from ...core.sample_inputs import seeded_inputs

    return seeded_inputs(compiled.inputs, seed, batch)


def reference(model: KitModel, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs of onnxruntime without graph optimizations, which change how quantized models round."""
    from ...verification.reference import run_reference

    return run_reference(model.proto, feeds, optimized=False)[0]


def compared(outputs: Arrays, feeds: Arrays, model: KitModel) -> VerifyReport:
    """Outputs against those of onnxruntime."""
    from ...verification.verify import report_of

    return report_of(outputs, reference(model, feeds), "onnxruntime", None, model.tolerance)


def faults(report: VerifyReport) -> str:
    """What disagrees; "" if nothing does."""
    return "; ".join([*report.problems, *(f"output {o.name!r}: {o.reason}" for o in report.outputs if not o.ok)])


def same_bits(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    """Whether two sets of outputs are equal, NaN included."""
    return first.keys() == second.keys() and all(first[n].tobytes() == second[n].tobytes() for n in first)
