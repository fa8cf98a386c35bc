"""A plan: the recipe and configuration chosen for a group; and a kernel, as the report shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm.s_tir import Schedule

from ..runtime.table import plain_named
from .graph.call_site import CallSite
from .machine import Machine
from .recipe import Config, Match, Recipe
from .records.record import Record


@dataclass(frozen=True)
class Plan:
    """What is decided about one group.

    Attributes:
        cost: estimated seconds.
        record: the tuning record it follows; None if it is the default of least estimated cost.
        choice: how it was chosen, for the report: "by" ("estimate", "record" or "measure") and, where something was
            to be measured, "reason", "measured" of "candidates", "seconds" and "default_seconds",
            "model_seconds" and "default_model_seconds" in a call of the model.
    """

    recipe: Recipe
    match: Match
    config: Config
    cost: float
    record: Record | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Kernel:
    """One kernel of the compiled model, for the report.

    Attributes:
        name: of the function in the compiled module.
        recipe: its recipe's name, "layout_transform", or "generic".
        config: its configuration.
        reason: why no recipe took it; empty if one did.
        layouts: of its parameters and result, as text.
        calls: one entry a call site: the ONNX nodes it computes.
        sites: one entry a call site: its place in the program, and the ONNX values it writes.
        estimate: seconds the cost model expects; 0 if there is none.
        flops: floating-point operations of one call, of a kernel that no recipe made; 0 if it only moves values.
        record: of which tuning session it follows a record; "" if it is the default.
        choice: that of its plan.
        schedule: schedules the function; None if TVM made it.
        plan: what its recipe was given; None if no recipe made it.
        cost: of a kernel without a plan, seconds that it would take on another machine; None if nobody estimates.
    """

    name: str
    recipe: str
    config: Config = field(default_factory=dict)
    reason: str = ""
    layouts: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)
    sites: list[CallSite] = field(default_factory=list)
    estimate: float = 0.0
    flops: float = 0.0
    record: str = ""
    choice: Mapping[str, Any] = field(default_factory=dict)
    schedule: Callable[[Schedule], None] | None = None
    plan: Plan | None = None
    cost: Callable[[Machine], float] | None = None

    @property
    def nodes(self) -> list[str]:
        """The ONNX nodes of all its calls, each once."""
        return list(dict.fromkeys(node for call in self.calls for node in call))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("name", "recipe", "config", "layouts", "nodes", "sites", "reason", "record", "choice")
        calls = {"calls": len(self.calls), "call_sites": [list(call) for call in self.calls]}
        return {**plain_named(self, *names), **calls, "estimated_us": round(self.estimate * 1e6, 1)}
