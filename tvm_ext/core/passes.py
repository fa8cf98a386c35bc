"""What a pass is: conditions before and after, a result that says what fired and what was skipped and why.

The pass protocol follows the idea of onnx/ir-py: a pass that breaks its own condition, or is given a module that
breaks it, is an error which names the pass and the one that ran before it.
"""

from __future__ import annotations

import abc
import bisect
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule

from .errors import PassError, TvmExtError, at_nodes, essence, failure
from .graph.ownership import Ownership, Role
from .graph.provenance import Provenance
from .instruments import Instruments, Switches
from .layout import Layout
from .machine import Machine
from .numbers.precision import PrecisionPlan
from .options import CompileOptions
from .records.record_book import RecordBook
from .records.schedule_database import MetaScheduleDatabase

if TYPE_CHECKING:
    from .graph.offload_plan import OffloadPlan
    from .plan import Kernel, Plan

Fact = TypeVar("Fact")


@dataclass(frozen=True)
class Event:
    """One thing a pass did, or did not do.

    Attributes:
        value: it looked at: ONNX nodes, or a name.
        detail: what, or why not.
        variables: of `main`, that it is about.
    """

    value: str
    detail: str
    variables: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class PassResult:
    """The module after a pass, with what it did and what it left alone.

    Attributes:
        facts: what later steps need to know and is not in the module; each of a class of its own, see
            :meth:`CompileContext.fact`.
    """

    mod: IRModule
    fired: tuple[Event, ...] = ()
    skipped: tuple[Event, ...] = ()
    facts: tuple[object, ...] = ()

    @property
    def modified(self) -> bool:
        return bool(self.fired)


@dataclass(frozen=True)
class PassReport:
    """What is kept of a pass that ran: names, counts, reasons, seconds. Plain values."""

    name: str
    fired: tuple[Event, ...]
    skipped: tuple[Event, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        events = {key: [[e.value, e.detail] for e in getattr(self, key)] for key in ("fired", "skipped")}
        return {"name": self.name, "seconds": round(self.seconds, 6), **events}


@dataclass
class CompileContext:
    """What passes may read (machine, options), must keep true (provenance), and decide (plans, kernels).

    Attributes:
        records: tuning records that choose-recipes may use.
        timings: what was measured for `choose="measure"`: its verdicts go before records.
        schedules: of kernels, found by MetaSchedule, that schedule-kernels may use.
        plans: group function -> the recipe and configuration chosen for it.
        kernels: kernel function -> what the report says of it.
        packed: constant in a kernel's layout -> the constant it was packed from, and the layout.
        weights: values of the parameters of `main` that follow the model's inputs.
        origins: for weights that were packed: number -> unpacked value and layout.
        pending: weights being packed on another thread; :meth:`settle` waits for them.
        ownership: who has the work of each ONNX node so far.
        offload: regions that a back end runs, and where each ONNX node runs; None if nothing was to be offloaded.
        instruments: what looks at this compile, and what is off in it.
        alone: ONNX node -> error of the outputs when it alone is computed in bf16, if that was measured.
        together: the same of all nodes in bf16 together; None if it was not measured.
        precision: what was decided about each product; None of a compile in float32.
        states: numbers of each output of `main` that is an input of the next call, and of that input.
        at: name of the variable of `main` that a pass looks at; "" if it does not say.
        facts: what passes returned, by class.
        shared: what programs of one model at several sizes have in common (:meth:`once`); None of one program.
        beside: whether it is a program at another size than the one that is built. Conditions are checked, and owners
            noted, of the built one; this one is compared with it binding by binding, and refused where they differ.
    """

    machine: Machine
    options: CompileOptions = field(default_factory=CompileOptions)
    provenance: Provenance = field(default_factory=Provenance)
    records: RecordBook = field(default_factory=RecordBook)
    timings: RecordBook = field(default_factory=RecordBook)
    schedules: MetaScheduleDatabase | None = None
    reports: list[PassReport] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    packed: list[tuple[GenericConst, GenericConst, Layout]] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    origins: dict[int, tuple[np.ndarray, Layout]] = field(default_factory=dict)
    pending: list[Future[None]] = field(default_factory=list)
    ownership: Ownership = field(default_factory=Ownership)
    offload: OffloadPlan | None = None
    instruments: Instruments = field(default_factory=Instruments)
    alone: Mapping[str, float] = field(default_factory=dict)
    together: float | None = None
    precision: PrecisionPlan | None = None
    states: tuple[tuple[int, int], ...] = ()
    at: str = ""
    facts: dict[type, Any] = field(default_factory=dict)
    shared: dict[Hashable, Any] | None = None
    beside: bool = False

    @property
    def switches(self) -> Switches:
        """What is off in this compile."""
        return self.instruments.switches

    def once(self, key: Hashable, make: Callable[[], Fact]) -> Fact:
        """What `make` returns, which does not depend on sizes; the same object again for the same key."""
        if self.shared is None:
            return make()
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def fact(self, kind: type[Fact]) -> Fact:
        """What a pass returned of this class.

        Raises:
            PassError: none did.
        """
        if kind not in self.facts:
            raise PassError(f"no pass has returned {kind.__name__} yet", fix="run the passes before this one, in order")
        return self.facts[kind]

    def settle(self) -> None:
        """Wait until all constants are packed: at the end of a pipeline, and before a pass reads their values.

        Raises:
            Exception: what packing raised.
        """
        for packing in self.pending:
            packing.result()

    def why_skipped(self, step: type[Pass], *, value: str = "", variable: str = "") -> str:
        """Why a pass left a value, or a variable of `main`, alone; "" if it did not."""
        events = (event for report in self.reports if report.name == step.name for event in report.skipped)
        return next((e.detail for e in events if (variable in e.variables if variable else e.value == value)), "")


Condition = Callable[[IRModule], str | None]
"""Returns None if the module is fine, else what is wrong with it."""


def has_main(mod: IRModule) -> str | None:
    """The module has a Relax function called `main`."""
    names = {gvar.name_hint for gvar in mod.get_global_vars()}
    if "main" in names and isinstance(mod["main"], relax.Function):
        return None
    return f"the module's functions are {sorted(names) or 'none'}"


class Pass(abc.ABC):
    """A Relax -> Relax rewrite.

    Attributes:
        name: unique, lower case with dashes; reports and errors use it.
        needed: why a compile cannot do without it; "" of a pass that may be switched off to find a culprit.
        requires: conditions on the module before; that there is a `main` unless a pass says otherwise.
        ensures: conditions on the module after.
        role: what the work of nodes is after it.
        stage: the form of a model that the module has after it, by the name that users write; "" if it has no name.
    """

    name: str
    needed: str = ""
    role: Role = Role.NONE
    stage: str = ""
    requires: tuple[Condition, ...] = (has_main,)
    ensures: tuple[Condition, ...] = ()

    @abc.abstractmethod
    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        """Rewrite `mod`; never change it in place."""

    def __call__(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        """Check the conditions around :meth:`run`.

        Raises:
            PassError: a condition does not hold, or the pass raised; names this pass and the one before.
        """
        before = f" (after pass {ctx.reports[-1].name!r})" if ctx.reports else ""
        if not ctx.beside:
            self._check("needs", self.requires, mod, before)
        start, ctx.at = time.perf_counter(), ""
        try:
            result = self.run(mod, ctx)
        except TvmExtError:
            raise
        except Exception as error:
            variable = ctx.at or self._culprit(mod, ctx, error)
            where = at_nodes(ctx.provenance.of(variable), ctx.ownership.types) or (variable and f" at {variable!r}")
            raise failure(PassError, f"pass {self.name!r}{before} failed{where}", error) from error
        if not ctx.beside:
            self._check("promises", self.ensures, result.mod, before)
        ctx.facts.update({type(fact): fact for fact in result.facts})
        ctx.reports.append(PassReport(self.name, result.fired, result.skipped, time.perf_counter() - start))
        return result

    def _culprit(self, mod: IRModule, ctx: CompileContext, error: Exception) -> str:
        """The first variable of `main` with which this pass fails as it did: by bisection, for TVM's passes never say.

        "" if there is none. The context is of no use afterwards.
        """
        from .graph.relax_graph import main_bindings, prefix_of

        def fails(count: int) -> bool:
            try:
                self.run(prefix_of(mod, count), ctx)
            except Exception as other:
                return essence(other) == essence(error)
            return False

        if "main" not in {gvar.name_hint for gvar in mod.get_global_vars()}:
            return ""  # programs of several batches
        bindings = main_bindings(mod)
        first = bisect.bisect_left(range(len(bindings) + 1), True, key=fails)
        return str(bindings[first - 1].var.name) if 0 < first <= len(bindings) else ""

    def _check(self, verb: str, conditions: Iterable[Condition], mod: IRModule, before: str) -> None:
        for condition in conditions:
            if wrong := condition(mod):
                raise PassError(f"pass {self.name!r}{before} {verb}: {condition.__name__}, but {wrong}")

    def as_tvm(self, ctx: CompileContext) -> tvm.transform.Pass:
        """This pass as a `tvm.transform.Pass`, to stand in a `tvm.transform.Sequential`."""

        @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.{self.name}")
        def apply(mod: IRModule, _: Any) -> IRModule:
            return self(mod, ctx).mod

        return apply


class TvmPass(Pass):
    """One of TVM's own passes over Relax.

    Args:
        name, needed, stage: see :class:`Pass`.
        make: makes TVM's pass.
    """

    requires = ()

    def __init__(self, name: str, make: Callable[[], tvm.transform.Pass], needed: str, stage: str = "") -> None:
        self.name, self._make, self.needed, self.stage = name, make, needed, stage

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        with ctx.machine.target(), tvm.transform.PassContext(opt_level=3):
            after = self._make()(mod)
        before = {gvar.name_hint: function for gvar, function in mod.functions_items()}
        names = (g.name_hint for g, f in after.functions_items() if not f.same_as(before.get(g.name_hint)))
        return PassResult(after, tuple(Event(name, "rewritten") for name in names))


def run_passes(passes: Iterable[Pass], mod: IRModule, ctx: CompileContext, *, owners: bool = True) -> IRModule:
    """Run passes in order, without those that are off; reports are appended to `ctx.reports`.

    Args:
        owners: whether `main` is still a graph of ONNX nodes, so that what vanishes from it is owned by the pass.
    """
    for step in passes:
        if step.name in ctx.switches.passes:
            continue
        mod = step(mod, ctx).mod
        if owners and not ctx.beside:
            ctx.ownership.see(step.name, mod, ctx.provenance, ctx.reports[-1].fired, step.role)
        ctx.instruments.see(step.name, mod, ctx)
    return mod
