"""From a model of static shapes to a lowered program: import and passes, all or some."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.instruments import Instruments
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.settings.states import Axes, state_pairs
from ..frontend.reading.reader import Source
from ..runtime.sizes.symbols import Symbol
from ..runtime.spec import TensorSpec
from .records import book_of, schedules_of, timings_of

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..core.graph.provenance import Provenance
    from ..core.passes import CompileContext, Pass
    from ..frontend.importer import Imported
    from ..precision.sensitivity import Sensitivity


class Clock:
    """Seconds of each stage, in the order they ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    @property
    def stage(self) -> str:
        """The last stage that ended; "start" before any did."""
        return next(reversed(self.seconds), "start")

    def lap(self, stage: str) -> None:
        """Count the time since the last lap to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + now - self._last, 4)
        self._last = now


@dataclass
class Lowered:
    """A model after all passes.

    Attributes:
        batch: size of the batch of rows it is made for; 0 if there is none.
        fixed: name of a symbol of the model -> the size that it has in it.
        symbols: the others, whose sizes it takes.
        body: name of the body that it is; "" of a model.
        bodies: of its loops, after all passes too.
    """

    source: Source
    imported: Imported
    mod: IRModule
    ctx: CompileContext
    clock: Clock
    batch: int = 0
    fixed: Mapping[str, int] = field(default_factory=dict)
    symbols: tuple[Symbol, ...] = ()
    body: str = ""
    bodies: tuple[Lowered, ...] = ()

    @property
    def tag(self) -> str:
        """What tells names of its functions from those of other programs."""
        if self.body:
            return f"_{self.body}"
        if self.batch:
            return f"_n{self.batch}"
        # S at 10 is _S10, S1 at 0 is _S1_0: within names underscores are two
        names = {name: name.replace("_", "__") + "_" * name[-1].isdigit() for name in self.fixed}
        return "".join(f"_{names[name]}{size}" for name, size in self.fixed.items())

    def with_bodies(self) -> Iterator[Lowered]:
        """It, and the bodies of its loops, and those within them."""
        yield self
        for body in self.bodies:
            yield from body.with_bodies()


@dataclass
class Programs:
    """What a model becomes: one program, or one for each size of a symbolic batch, or of any size and exact ones.

    Attributes:
        inputs, outputs: of the model, symbolic if its batch is.
        lowered: its programs; the one of any size stands first, of a batch the largest last.
        symbols: sizes that they take; none of programs of numbers.
        warnings: what is to be said of them.
        least: the import at the smallest size of each symbol, where it is the one of a model of these sizes alone.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    lowered: tuple[Lowered, ...]
    symbols: tuple[Symbol, ...] = ()
    warnings: tuple[str, ...] = ()
    least: Imported | None = None

    @property
    def largest(self) -> int:
        """The number of the program whose facts are the model's: of any size, or of the largest batch."""
        return 0 if self.symbols else len(self.lowered) - 1


NO_INSTRUMENTS = Instruments()
#: The phase before which kernels are scheduled, and `main` calls them.
SCHEDULED = "states"


def start(
    source: Source, options: CompileOptions, machine: Machine, clock: Clock, instruments: Instruments, batch: int = 0,
    sensitivity: Sensitivity | None = None, imported: Imported | None = None, grows: Axes = frozenset(),
) -> Lowered:  # fmt: skip
    """A model of static shapes after its import, before any pass.

    Args:
        sensitivity: the run that `max_error` asks for; None makes one if it does.
        imported: the model in Relax; None imports it.
        grows: (name of an input, axis) along which a state may grow.
    """
    from ..frontend.importer import import_model
    from ..precision.sensitivity import measured, with_kept

    sensitivity = sensitivity or measured(source, options)
    options = with_kept(options, sensitivity)
    imported = imported or import_model(source, options)
    clock.lap("import")
    begun = Lowered(source, imported, imported.mod, _context(imported, options, machine, instruments), clock, batch)
    begun.ctx.states = state_pairs(options.state, imported.inputs, imported.outputs, source.name, grows)
    if sensitivity is not None:
        begun.ctx.alone, begun.ctx.together = sensitivity.alone, sensitivity.together
    return begun


def _context(imported: Imported, options: CompileOptions, machine: Machine, instruments: Instruments) -> CompileContext:
    ctx = new_context(options, machine, imported.provenance, instruments)
    imported.enter(ctx)
    return ctx


def new_context(
    options: CompileOptions, machine: Machine, provenance: Provenance, instruments: Instruments = NO_INSTRUMENTS
) -> CompileContext:
    """The context of a compile before any pass, with the records that its options name."""
    from ..core.passes import CompileContext

    books = book_of(options), timings_of(options, machine), schedules_of(options)
    return CompileContext(machine, options, provenance, *books, instruments=instruments)


def run_pipeline(begun: Lowered, until: type[Pass] | str = SCHEDULED, last: str = "") -> Lowered:
    """A model that :func:`start` imported, after passes, and the bodies of its loops.

    Args:
        until: the phase, or the pass, before which it ends; see :meth:`..passes.pipeline.Pipeline.before`.
        last: the step with which it ends, "import" or a pass; "" to end at `until`.
    """
    from ..passes.pipeline import Pipeline

    ctx = begun.ctx
    ctx.instruments.see("import", begun.mod, ctx)
    passes = Pipeline.of(ctx.options).before(until)
    mod = (passes.through(last) if last else passes).run(begun.mod, ctx)
    begun.clock.lap("passes")
    return with_bodies(replace(begun, mod=mod), until, last)


def with_bodies(lowered: Lowered, until: type[Pass] | str = SCHEDULED, last: str = "") -> Lowered:
    """A model with the bodies of its loops after passes; `until` and `last` as in :func:`run_pipeline`."""
    bodies = lowered.imported.bodies.items()
    return replace(lowered, bodies=tuple(run_pipeline(_body(lowered, *named), until, last) for named in bodies))


def _body(begun: Lowered, name: str, imported: Imported) -> Lowered:
    """The body of a loop before any pass; nobody watches it."""
    unseen = replace(begun.ctx.instruments, watch=None)
    ctx = _context(imported, begun.ctx.options, begun.ctx.machine, unseen)
    return Lowered(begun.source, imported, imported.mod, ctx, begun.clock, body=name)
