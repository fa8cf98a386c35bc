"""What a compile has decided by a stage, as plain JSON values, and back."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tvm.ir import GenericConst

from ...core.graph.offload_plan import OffloadedRegion, OffloadPlan
from ...core.graph.ownership import Owner, Ownership
from ...core.graph.provenance import Provenance
from ...core.machine import Machine
from ...core.numbers.precision import PrecisionPlan
from ...core.options import CompileOptions
from ...core.passes import CompileContext, Event, PassReport
from ...core.plan import Kernel
from ...core.settings.frozen import FrozenInput
from ...runtime.plain import read
from ...runtime.table import plain, plain_named
from ..lower import new_context


def options_state(options: CompileOptions) -> dict[str, Any]:
    """Options as JSON values; a function for `fusion`, or a back end that is no name, is left out."""
    values = {item.name: getattr(options, item.name) for item in dataclasses.fields(options)}
    del values["threads_wait"]  # of the process, not of the compile
    values["freeze"] = [dataclasses.asdict(item) for item in options.freeze]
    values["offload_options"] = [[name, value] for name, value in options.offload_options]
    if not isinstance(options.fusion, str):
        del values["fusion"]
    if options.offload is not None and not isinstance(options.offload, str):
        values["offload"] = options.offload.name
    return values


def options_of(state: Mapping[str, Any]) -> CompileOptions:
    """The inverse of :func:`options_state`.

    Raises:
        OptionError: a value does not fit.
    """
    values = dict(state)
    values["freeze"] = read(tuple[FrozenInput, ...], values.get("freeze", ()))
    values["shapes"] = [(name, tuple(shape)) for name, shape in values.get("shapes", ())]
    values["offload_options"] = dict(values.get("offload_options", ()))
    return CompileOptions.of(**values)


def context_state(ctx: CompileContext) -> dict[str, Any]:
    """What later passes and the report read of a context; regions have no "program" yet, the name of its tensor."""
    state = {
        "provenance": ctx.provenance.state(),
        "ownership": {
            "types": ctx.ownership.types,
            "gone": {node: [o.kind, o.name, o.reason, o.call] for node, o in ctx.ownership.gone.items()},
            "passes": {node: [list(item) for item in rewrites] for node, rewrites in ctx.ownership.passes.items()},
        },
        "passes": [report.as_dict() for report in ctx.reports],
        "kernels": {name: _kernel_state(kernel) for name, kernel in ctx.kernels.items()},
    }
    if ctx.precision is not None:
        state["precision"] = ctx.precision.as_dict()
    if ctx.offload is not None:
        regions = [plain_named(item, *_REGION) for item in ctx.offload.regions]
        state["offload"] = {"backend": ctx.offload.backend, "regions": regions, "places": plain(ctx.offload.places)}
    return state


def context_of(
    state: Mapping[str, Any], options: CompileOptions, machine: Machine, constant_of: Callable[[str], GenericConst]
) -> CompileContext:
    """A context with what :func:`context_state` kept; its kernels have no plans yet.

    Args:
        constant_of: the constant of a tensor, which is that of the module.
    """
    provenance = Provenance.of_state(state["provenance"])
    ctx = new_context(options, machine, provenance)
    owned = state["ownership"]
    ctx.ownership = Ownership(owned["types"])
    ctx.ownership.gone = {node: Owner(*row) for node, row in owned["gone"].items()}
    ctx.ownership.passes = {node: [(name, what) for name, what in rows] for node, rows in owned["passes"].items()}
    for row in state["passes"]:
        fired, skipped = (tuple(Event(*event) for event in row[kind]) for kind in ("fired", "skipped"))
        ctx.reports.append(PassReport(row["name"], fired, skipped, row["seconds"]))
    for name, row in state["kernels"].items():
        ctx.kernels[name] = Kernel(name, **{key: value for key, value in row.items() if key != "group"})
    if "precision" in state:
        ctx.precision = PrecisionPlan.of_dict(state["precision"])
    if "offload" in state:
        ctx.offload = _offload_plan(state["offload"], constant_of)
    return ctx


def _kernel_state(kernel: Kernel) -> dict[str, Any]:
    group = {"group": kernel.plan.match.group.name} if kernel.plan else {}
    names = ("recipe", "config", "reason", "layouts", "estimate", "flops", "record", "choice")
    return {name: getattr(kernel, name) for name in names} | group


_REGION = ("name", "backend", "module", "kernel", "nodes", "composites", "seconds", "host_seconds", "facts")


def _offload_plan(state: Mapping[str, Any], constant_of: Callable[[str], GenericConst]) -> OffloadPlan:
    regions = []
    for row in state["regions"]:
        composites = read(tuple[tuple[str, tuple[str, ...]], ...], row["composites"])
        read_back = {"program": constant_of(row["program"]), "nodes": tuple(row["nodes"]), "composites": composites}
        regions.append(OffloadedRegion(**{**row, **read_back}))
    return OffloadPlan(state["backend"], regions, read(dict[str, tuple[str, str]], state["places"]))
