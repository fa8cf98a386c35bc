"""Regions as programs: each composite a layer, values between them where a plan puts them; timed once, remembered.

A program and its timing are kept as long as their region is, so that asking for the cost and lowering do it once.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from ....core.errors import ProgramError
from ...backend import Lowered
from ...region import Composite, Region, Value
from ..code.codegen import code_of
from ..code.layer import GemmLayer
from ..code.layer_check import check_layer
from ..code.plan import Edge, Plan, plan
from ..code.program import Tensor
from ..code.tiling import check_fits
from ..config import SystolicOptions
from ..results.report import LayerRow, layer_rows
from ..rtl import check_instructions, missing_operation
from ..simulation.timing import Timing, simulate
from .conv2d import conv2d_layer
from .elementwise import elementwise_layer
from .matmul import matmul_layer
from .operands import tensor_name
from .pooling import POOLINGS, pooling_layer

_LAYER_OF = {
    "relax.matmul": matmul_layer,
    "relax.nn.conv2d": conv2d_layer,
    **dict.fromkeys(POOLINGS, pooling_layer),
    **dict.fromkeys(("relax.add", "relax.quantize"), elementwise_layer),
}
_Known = tuple[SystolicOptions, Timing, tuple[Edge, ...]]
#: The last one of each region; a program holds its weights, so all of a sweep over options would be too much.
_known: weakref.WeakKeyDictionary[Region, _Known] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def check_composite(composite: Composite, options: SystolicOptions) -> str:
    """Why a composite cannot be a layer of this accelerator; "" if it can. Looks at no weight."""
    try:
        layer = _LAYER_OF[composite.anchor.op](composite, options, dry=True)
        tensors = tensors_of(Region.of(composite.name, composite))
        check_layer(layer, {tensor.name: tensor for tensor in tensors}, options)
        check_fits(layer.problem(composite.result.dtype, options.dataflow), options)
        if options.run == "rtl":
            return next((problem for step in layer.steps if (problem := missing_operation(step.op))), "")
    except ProgramError as error:
        return error.message
    return ""


def lower_region(region: Region, options: SystolicOptions) -> Lowered:
    """The program of a region, and facts of its timing.

    Raises:
        ProgramError: a composite does not fit the accelerator; names the layer.
    """
    timing, edges = _planned(region, options)
    facts = {**_facts(timing), "edges": [dataclasses.asdict(edge) for edge in edges]}
    return Lowered(timing.program.to_bytes(), facts)


def seconds_of(region: Region, options: SystolicOptions) -> float:
    """Simulated time of one run, with the launch by the host.

    Raises:
        ProgramError: as :func:`lower_region`.
    """
    return _seconds(timing_of(region, options))


def timing_of(region: Region, options: SystolicOptions) -> Timing:
    """The program of a region, timed; the same object while the region lives and is asked for with these options."""
    return _planned(region, options)[0]


def plan_of(region: Region, options: SystolicOptions) -> Plan:
    """What becomes of the layers of a region, and of the results between them.

    Raises:
        ProgramError: as :func:`lower_region`.
    """
    layers = [layer_of(composite, options) for composite in region.composites]
    return plan(layers, tensors_of(region), options.accelerator, options.dataflow, options.fusion)


def _planned(region: Region, options: SystolicOptions) -> tuple[Timing, tuple[Edge, ...]]:
    with _lock:
        known = _known.get(region)
    if known is not None and known[0] == options:
        return known[1:]
    planned = plan_of(region, options)
    program = code_of(planned, options.accelerator)
    if options.run == "rtl":
        check_instructions(program.instructions)
    timing = simulate(dataclasses.replace(program, run=options.run))
    with _lock:
        _known[region] = (options, timing, planned.edges)
    return timing, planned.edges


def layer_of(composite: Composite, options: SystolicOptions) -> GemmLayer:
    """The layer of a composite, with what reports show of it.

    Raises:
        ProgramError: it does not fit the accelerator; names the layer.
    """
    try:
        layer = _LAYER_OF[composite.anchor.op](composite, options)
    except ProgramError as error:
        raise ProgramError(f"layer {composite.name}: {error.message}", fix=error.fix) from None
    facts = {
        "node": composite.name, "nodes": list(composite.nodes), "op": composite.anchor.op.removeprefix("relax."),
        "epilogue": [operation.op.removeprefix("relax.") for operation in composite.epilogue],
        "shape": list(composite.result.shape),
    }  # fmt: skip
    return dataclasses.replace(layer, facts=facts)


def tensors_of(region: Region) -> list[Tensor]:
    """Inputs and outputs in the region's order, then what is only read within it."""
    tensors = {value.name: _tensor(value, "input") for value in region.inputs}
    tensors |= {value.name: _tensor(value, "output") for value in region.outputs}
    for composite in region.composites:
        tensors.setdefault(composite.result.name, _tensor(composite.result, "scratch"))
    return list(tensors.values())


def _tensor(value: Value, role: str) -> Tensor:
    return Tensor(tensor_name(value), role, value.shape, value.dtype)


def _seconds(timing: Timing) -> float:
    hardware = timing.program.accelerator
    return hardware.seconds(timing.cycles + hardware.launch_cycles)


def _facts(timing: Timing) -> Mapping[str, Any]:
    return {
        "accelerator": timing.program.accelerator.as_dict(), "cycles": timing.cycles, "seconds": _seconds(timing),
        "utilization": timing.utilization, "energy": dict(timing.totals.energy),
        "energy_source": timing.program.accelerator.energy.source,
        "dram_bytes": timing.totals.bytes_at("dram"), "macs": timing.totals.macs,
        "layers": [_row(row) for row in layer_rows(timing)],
    }  # fmt: skip


def _row(row: LayerRow) -> dict[str, Any]:
    values = {f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.name != "facts"}
    return {**row.facts, **values, "intensity": row.intensity if row.dram_bytes else None}
