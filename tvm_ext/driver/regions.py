"""The regions that a back end would get of a model, without programs for them: for studies of hardware.

regions = regions_of("resnet18.onnx", "systolic")
points = tvm_ext.byoc.systolic.sweep(regions, [{"rows": 8, "cols": 8}, {"rows": 16, "cols": 16}])
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..byoc import Backend, Lowered, Region
from ..byoc.partition import Partitioner
from ..byoc.relax_view import RelaxView
from ..byoc.settings import offloading_of
from ..core.machine import machine_for
from ..core.options import CompileOptions
from ..passes.lowering.offload import Offload
from .programs import lower


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
    wanted = {**(offload_options or {}), "when": "always"}
    compiled = CompileOptions.of(**options, offload=offload, offload_options=wanted)
    offloading = offloading_of(offload, wanted)
    assert offloading is not None
    lowered = lower(model, compiled, machine_for(compiled), until=Offload)
    view = RelaxView(lowered.mod, lowered.imported.provenance)
    only_match = dataclasses.replace(offloading.backend, lower=lambda region, options: Lowered(b""), cost=None)
    matching = dataclasses.replace(offloading, backend=only_match)
    partition = Partitioner(view, matching, lowered.imported.types, lambda composite: 0.0).partition()
    return tuple(planned.region for planned in partition.planned)
