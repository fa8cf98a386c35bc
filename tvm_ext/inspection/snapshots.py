"""What a compile looked like after each step: a watch that keeps modules, and copies of what was decided by then."""

from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import GenericConst, IRModule

from ..core.passes import CompileContext
from ..driver.stages.catalog import STAGES
from ..driver.stages.state import context_state

_RESUMABLE = {stage.after for stage in STAGES if stage.resumes}


@dataclass(frozen=True)
class Snapshot:
    """A compile after one step.

    Attributes:
        step: "import", or the pass.
        mod: the module.
        state: what was decided, as :func:`.stage_state.context_state` makes it; None for steps that are no stage.
        programs: of the regions in `state`, in order.
        groups: functions that kernels were made of.
    """

    step: str
    mod: IRModule
    state: dict[str, Any] | None = None
    programs: tuple[GenericConst, ...] = ()
    groups: dict[str, relax.Function] | None = None


class Snapshots:
    """The watch of one compile.

    Attributes:
        steps: so far, in order.
    """

    def __init__(self) -> None:
        self.steps: list[Snapshot] = []

    def watch(self, step: str, mod: IRModule, ctx: CompileContext) -> None:
        """See a step; see :data:`.instruments.Watch`."""
        self.steps.append(_snapshot(step, mod, ctx) if step in _RESUMABLE else Snapshot(step, mod))

    def of(self, step: str) -> Snapshot | None:
        """The last snapshot of a step."""
        return next((snapshot for snapshot in reversed(self.steps) if snapshot.step == step), None)


def _snapshot(step: str, mod: IRModule, ctx: CompileContext) -> Snapshot:
    regions = ctx.offload.regions if ctx.offload else []
    plans = (kernel.plan for kernel in ctx.kernels.values() if kernel.plan)
    groups = {plan.match.group.name: plan.match.group.function for plan in plans}
    return Snapshot(step, mod, context_state(ctx), tuple(region.program for region in regions), groups)
