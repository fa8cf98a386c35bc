"""What was decided about offloading: regions with their programs, and for each ONNX node where it runs and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.ir import GenericConst

from ...runtime.table import plain_named
from ..plan import Kernel
from .call_site import CallSite

#: Places besides those of back ends: kernels of this library, and nothing, where no work is left at run time.
CPU, COMPILE_TIME = "cpu", "compile time"


@dataclass
class OffloadedRegion:
    """A region that a back end runs.

    Attributes:
        name: unique in the model.
        backend: its name; module: whose import registers its driver.
        program: the constant that holds its program.
        kernel: the kernel that calls it.
        nodes: ONNX nodes it computes.
        composites: (pattern, operators) of each of its composites.
        seconds: estimated, of one run there; None if the back end has no cost model. host_seconds: on the CPU; None if
            nothing here computes it.
        facts: what the back end says of it.
        anchors: of each composite its ONNX nodes, those of its anchor first.
        weight: number of the program among the weights of `main`, once it is lifted.
    """

    name: str
    backend: str
    module: str
    program: GenericConst
    kernel: str
    nodes: tuple[str, ...]
    composites: tuple[tuple[str, tuple[str, ...]], ...]
    seconds: float | None
    host_seconds: float | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    anchors: tuple[tuple[str, ...], ...] = ()
    weight: int = -1

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("name", "backend", "kernel", "nodes", "composites", "seconds", "host_seconds", "facts")
        return {**plain_named(self, *names), "program_bytes": int(self.program.value.shape[0])}


@dataclass
class OffloadPlan:
    """All regions of a program.

    Attributes:
        backend: name of the back end that was asked.
        regions: in model order.
        places: ONNX node -> (place, reason).
    """

    backend: str
    regions: list[OffloadedRegion] = field(default_factory=list)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of_regions(cls, regions: Sequence[OffloadedRegion]) -> OffloadPlan:
        """What is decided before any pass: regions of nodes that no converter takes, for the reason of each node."""
        reasons = [(region.name, node, why) for region in regions for node, why in region.facts["reasons"].items()]
        return cls(regions[0].backend, list(regions), {node: (name, why) for name, node, why in reasons})

    def keep(self, operands: Sequence[Any]) -> None:
        """Forget the regions whose program is none of these operands of the calls that are left."""
        kept: list[OffloadedRegion] = []
        for region in self.regions:
            if any(region.program.same_as(operand) for operand in operands):
                kept.append(region)
            else:
                self.places = {node: place for node, place in self.places.items() if node not in region.nodes}
        self.regions = kept

    def as_dict(
        self, types: Mapping[str, str], gone: Mapping[str, str] | None = None, kernels: Iterable[Kernel] = (),
        keeps_state: bool = False, asynchronous: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Plain values for JSON.

        Args:
            types: ONNX node -> ONNX operator.
            gone: ONNX node that is no work any more -> why.
            kernels: of the program, those that call regions among them.
            keeps_state: whether a run reads what the last one left.
            asynchronous: whether kernels run beside regions.
        """
        rest = {node: (COMPILE_TIME, gone[node]) if gone and node in gone else (CPU, "") for node in types}
        ops = [[node, types.get(node, ""), *place] for node, place in {**rest, **self.places}.items()]
        calls = {region.kernel for region in self.regions}
        kernels = [kernel for kernel in kernels if kernel.calls]
        own = [kernel for kernel in kernels if kernel.name not in calls]
        kept = [[k.name, k.recipe, k.nodes, len(k.calls) * k.estimate or None] for k in own]
        regions = [region.as_dict() for region in self.regions]
        sites = {site.order: [self._name_of(k.name, site), list(site.reads)] for k in kernels for site in k.sites}
        return {
            "backend": self.backend, "regions": regions, "ops": ops, "kept": kept,
            "calls": [row for _, row in sorted(sites.items())], "keeps_state": keeps_state,
            "asynchronous": asynchronous,
        }  # fmt: skip

    def _name_of(self, kernel: str, site: CallSite) -> str:
        """The region that a call runs, of several of a kernel that of its nodes ("" if none is); else the kernel."""
        regions = [region for region in self.regions if region.kernel == kernel]
        if len(regions) > 1:
            regions = [region for region in regions if {*region.nodes} == {*site.nodes}]
            return next((region.name for region in regions), "")
        return regions[0].name if regions else kernel
