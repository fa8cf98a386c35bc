"""What a compile expects of each kernel on a machine, without running it: time, threads, rounding, idle threads.

The rows are of the plans that a compile leaves. The same groups are planned for fewer threads, too: a kernel that is
estimated to be faster with fewer takes too many.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.machine import Machine, machine_for
from ..core.options import CompileOptions
from ..core.pages.page import Note, Part, Shown
from ..core.plan import Kernel
from ..driver.lower import Lowered
from ..driver.programs import lower_all
from ..passes.lowering.choose_recipes import least_cost, matches
from ..runtime.table import Column, Plain, Table, Value, percent_cell, plain_fields

_COLUMNS = ("kernel", "recipe", "calls", "threads", Column("time", "us", ".1f"), "share", "rounding", "idle")


@dataclass(frozen=True)
class KernelEstimate(Plain):
    """A kernel as a compile expects it to be.

    Attributes:
        name, recipe: of the kernel; `calls`: of it in the model.
        threads: that it wakes.
        seconds: of all calls; 0 where nobody estimates: a kernel that no recipe made.
        rounding: work beyond the real over the real, if each thread had as much as the busiest
            (:mod:`..core.cost.sharing`).
        idle: the share of the machine's threads that it does not wake.
        fewer: number of threads -> seconds of all calls, if it were compiled for so many; the machine's included.
    """

    name: str
    recipe: str
    calls: int
    threads: int
    seconds: float
    rounding: float
    idle: float
    fewer: Mapping[int, float]

    derived = ("worse",)

    @property
    def worse(self) -> bool:
        """Whether it is estimated to be faster when it is compiled for fewer threads."""
        return self.seconds > min(self.fewer.values()) * (1 + 1e-9)


@dataclass(frozen=True)
class Estimate(Shown):
    """What a compile expects of a model on a machine; `str()` prints it.

    Attributes:
        model: its name.
        machine, threads: compiled for.
        rows: one a kernel, in the order they run first.
    """

    model: str
    machine: str
    threads: int
    rows: tuple[KernelEstimate, ...]

    @property
    def seconds(self) -> float:
        """Latency of a call: its kernels one after the other."""
        return sum(row.seconds for row in self.rows)

    @property
    def fewer(self) -> dict[int, float]:
        """Number of threads -> latency, if the model were compiled for so many."""
        counts = sorted({count for row in self.rows for count in row.fewer})
        return {count: sum(row.fewer[count] for row in self.rows) for count in counts}

    @property
    def worse(self) -> tuple[KernelEstimate, ...]:
        """Kernels that are estimated to be faster with fewer threads."""
        return tuple(row for row in self.rows if row.worse)

    @property
    def rounding(self) -> float:
        """Work rounded up over the real, weighted by time."""
        return self._mean("rounding")

    @property
    def idle(self) -> float:
        """Share of the machine's threads that nobody wakes, weighted by time."""
        return self._mean("idle")

    def _mean(self, field: str) -> float:
        return sum(getattr(row, field) * row.seconds for row in self.rows) / (self.seconds or 1.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = plain_fields(self, "seconds", "rounding", "idle", "fewer")
        return {**fields, "worse": [row.name for row in self.worse]}

    def table(self) -> Table:
        """A row a kernel, and the total."""
        whole = self.seconds or 1.0
        rows: list[tuple[Value, ...]] = [
            (row.name, row.recipe, row.calls, row.threads, row.seconds * 1e6, percent_cell(row.seconds / whole),
             percent_cell(row.rounding), percent_cell(row.idle))
            for row in self.rows
        ]  # fmt: skip
        calls = sum(row.calls for row in self.rows)
        last = ("all", "", calls, None, self.seconds * 1e6, None, percent_cell(self.rounding), percent_cell(self.idle))
        return Table(_COLUMNS, [*rows, last])

    def parts(self) -> list[Part]:
        """What was estimated, a row a kernel, latency by threads, and which kernels take too many."""
        counts = ", ".join(f"{count}: {seconds * 1e6:.0f} us" for count, seconds in self.fewer.items())
        head = f"{self.model} on {self.machine}, {self.threads} threads: estimates, nothing was run"
        worse = ", ".join(row.name for row in self.worse)
        unknown = ", ".join(row.name for row in self.rows if not row.seconds)
        notes = (("faster with fewer threads", worse), ("no estimate", unknown))
        said = (f"{what}: {names}" for what, names in notes if names)
        return [Note(head), self.table(), *map(Note, (f"by threads  {counts}", *said))]


def estimate(model: Any, **options: Any) -> Estimate:
    """What a compile expects of each kernel, on the machine that the options name; nothing is built or run.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`. Of a symbolic batch, its largest size.
        **options: compile options, as for :func:`tvm_ext.compile`, such as `machine` and `threads`.

    Returns:
        An estimate: `rows`, `seconds`, `fewer` (latency by number of threads), `rounding`, `idle`; `str()` prints it.

    Raises:
        OptionError, ModelError, UnsupportedError: as for :func:`tvm_ext.compile`.
    """
    compile_options = CompileOptions.of(**options)
    machine = machine_for(compile_options)
    programs = lower_all(model, compile_options, machine)
    lowered = programs.lowered[programs.largest]
    rows = tuple(_row(kernel, lowered, machine) for kernel in lowered.ctx.kernels.values() if kernel.calls)
    name = str(compile_options.machine or compile_options.target or "this machine")
    return Estimate(lowered.source.name, name, machine.threads, rows)


def thread_counts(machine: Machine) -> list[int]:
    """Powers of two up to the machine's threads, and these."""
    return sorted({1 << i for i in range(machine.threads.bit_length())} | {machine.threads})


def _row(kernel: Kernel, lowered: Lowered, machine: Machine) -> KernelEstimate:
    calls, plan = len(kernel.calls), kernel.plan
    counts = thread_counts(machine)
    by_count = {t: calls * _seconds(kernel, machine.with_threads(t), lowered) for t in counts[:-1]}
    fewer = {**by_count, machine.threads: calls * kernel.estimate}
    threads, rounding = int(kernel.config.get("threads", 1)), 0.0
    if plan is not None:
        sharing = plan.recipe.sharing(plan.match, plan.config, machine)
        threads, rounding = sharing.threads, sharing.rounding
    idle = 1 - threads / machine.threads
    return KernelEstimate(
        kernel.name, kernel.recipe, calls, threads, calls * kernel.estimate, rounding, idle, fewer
    )  # fmt: skip


def _seconds(kernel: Kernel, machine: Machine, lowered: Lowered) -> float:
    """Of one call, compiled for a machine with another number of threads."""
    if kernel.plan is None:
        return kernel.cost(machine) if kernel.cost is not None else kernel.estimate
    exact, off = lowered.ctx.options.accuracy == "exact", lowered.ctx.switches.recipes
    plan = least_cost(matches(kernel.plan.match.group, machine, exact=exact, off=off), machine)
    return plan.cost if plan is not None else kernel.estimate
