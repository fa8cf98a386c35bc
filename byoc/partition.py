"""Partitioning: which regions of a function a back end runs, and for every operation where it runs and why.

match   composites of the back end's patterns           (match.py)
keep    what the user skips, or is too small, goes
merge   neighbours become one region                    (merge.py)
lower   what cannot be lowered after all goes
decide  what does not pay goes: region against the CPU kernels it replaces, transfers and launch included
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..core.errors import ProgramError
from .backend import Lowered
from .match import Matcher
from .merge import Merger
from .region import Composite, Region
from .relax_view import RelaxView
from .settings import Offloading

HostSeconds = Callable[[Composite], float]
"""Estimated seconds of a composite on the CPU."""


@dataclass(frozen=True)
class Planned:
    """A region that is offloaded: its program, and estimated seconds there and on the CPU.

    `seconds` is None if the back end has no cost model.
    """

    region: Region
    lowered: Lowered
    seconds: float | None
    host_seconds: float


@dataclass
class Partition:
    """What is offloaded, and why the rest is not.

    Attributes:
        planned: regions, in model order.
        refusals: name of a value -> why the CPU computes it.
        order: names of all bindings, members of a region side by side.
        live: names of all that is still needed; prologues that only regions read are not.
    """

    planned: list[Planned] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    live: set[str] = field(default_factory=set)


class Partitioner:
    """Partitions one function.

    Args:
        view: the function.
        offloading: for whom, and what.
        types: ONNX node -> ONNX operator.
        host: what the CPU would take.
        kept: ONNX nodes whose anchors stay on the CPU in this compile -> why, as in "is switched off".
    """

    def __init__(
        self, view: RelaxView, offloading: Offloading, types: Mapping[str, str], host: HostSeconds,
        kept: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._view, self._offloading, self._types, self._host = view, offloading, types, host
        self._kept = kept or {}
        self._prefix = f"{offloading.backend.name}_region_"
        self._refusals: dict[str, str] = {}
        self._alone: set[Composite] = set()

    def partition(self) -> Partition:
        """The regions that are offloaded."""
        matcher = Matcher(self._view, self._offloading.backend, self._offloading.options)
        composites = matcher.composites()
        self._refusals = matcher.refusals
        composites = [c for c in composites if not self._refuse(c, self._keeps_out(c))]
        planned: list[Planned] = []
        while composites:
            merger = Merger(self._view, composites, self._alone)
            regions = merger.regions(self._prefix)
            planned = [plan for region in regions if (plan := self._plan(region)) is not None]
            kept = {composite for plan in planned for composite in plan.region.composites}
            if len(planned) == len(regions):
                return Partition(planned, self._refusals, merger.order(), merger.live())
            composites = [c for c in composites if c in kept or c.result.name not in self._refusals]
        return Partition([], self._refusals)

    def _keeps_out(self, composite: Composite) -> str:
        """Why an anchor is to stay on the CPU; "" if it may go."""
        if self._kept and (off := [node for node in composite.anchor.nodes if node in self._kept]):
            return f"{off[0]} {self._kept[off[0]]}"
        return self._offloading.keeps_out(composite, self._types)

    def _refuse(self, composite: Composite, reason: str) -> bool:
        """Note why a composite stays on the CPU; whether there is a reason."""
        if reason:
            for operation in composite.operations:
                self._refusals.setdefault(operation.result.name, reason)
        return bool(reason)

    def _plan(self, region: Region) -> Planned | None:
        """The plan of a region; None if some of it was refused, or is to stand alone: then regions are made again."""
        plan = self._assess(region)
        if isinstance(plan, Planned):
            return plan
        self._split(region, plan)
        return None

    def _assess(self, region: Region) -> Planned | str:
        """The plan of a region; or why it stays on the CPU."""
        backend, options = self._offloading.backend, self._offloading.options
        try:
            lowered = backend.lowered(region, options)
            seconds = backend.cost(region, options) if backend.cost is not None else None
        except ProgramError as error:
            return f"it cannot be lowered: {error.message}"
        host = sum(map(self._host, region.composites))
        if self._offloading.when == "pays" and seconds is not None and seconds >= host:
            return f"it does not pay: {seconds * 1e6:.1f} us there, {host * 1e6:.1f} us on the CPU"
        return Planned(region, lowered, seconds, host)

    def _split(self, region: Region, reason: str) -> None:
        """A region is refused: those of its composites that are refused alone go; if none is, each stands alone."""
        single = len(region.composites) == 1
        refused = [c for c in region.composites if self._refuse(c, reason if single else self._alone_refused(c))]
        if not refused:
            self._alone.update(region.composites)

    def _alone_refused(self, composite: Composite) -> str:
        """Why a composite is refused as a region of its own; "" if it is not."""
        plan = self._assess(Region.of(f"{self._prefix}alone", composite))
        return plan if isinstance(plan, str) else ""
