"""The regions that a back end would get of a model, without programs for them: for studies of hardware.

regions = regions_of("resnet18.onnx", "systolic")
points = tvm_ext.byoc.systolic.results.sweep(regions, [{"rows": 8, "cols": 8}, {"rows": 16, "cols": 16}])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.machine import Machine
from ..core.options import CompileOptions
from ..frontend.reading.reader import read_model

if TYPE_CHECKING:
    from ..byoc import Backend, Region


def regions_of(
    model: Any, offload: str | Backend = "systolic", offload_options: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Region, ...]:
    """All regions that the back end takes, whether they pay or not, in model order.

    Args:
        model: as for `tvm_ext.compile`; its shapes are static.
        offload: the back end, or its name.
        offload_options: as for `tvm_ext.compile`; `when` is always "always".
        **options: other options of `tvm_ext.compile`, such as `shapes`.

    Raises:
        OptionError: there is no such back end or option.
        ModelError: as `tvm_ext.compile`.
    """
    from ..byoc import Lowered
    from ..byoc.partition import Partitioner
    from ..byoc.relax_view import RelaxView
    from ..byoc.settings import offloading_of
    from ..core.passes import CompileContext, run_passes
    from ..frontend.importer import import_model
    from ..passes.lowering.offload import Offload
    from ..passes.pipeline import pipeline

    given = CompileOptions.of(**options)
    offloading = offloading_of(offload, {**(offload_options or {}), "when": "always"})
    assert offloading is not None
    source = read_model(model)
    imported = import_model(source, given)
    passes = pipeline(offloading)
    before = passes[: next(at for at, one in enumerate(passes) if isinstance(one, Offload))]
    ctx = CompileContext(Machine.detect(), given, imported.provenance)
    view = RelaxView(run_passes(before, imported.mod, ctx), imported.provenance)
    only_match = dataclasses.replace(offloading.backend, lower=lambda region, options: Lowered(b""), cost=None)
    wanted = dataclasses.replace(offloading, backend=only_match)
    partition = Partitioner(view, wanted, imported.types, lambda composite: 0.0).partition()
    return tuple(planned.region for planned in partition.planned)
