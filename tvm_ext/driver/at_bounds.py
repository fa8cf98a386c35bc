"""A model of symbolic sizes as one program, planned at their bounds.

The model is lowered several times, with numbers: at the bounds, and at a few other sizes with the decisions of the
bounds. Side by side these programs tell how each shape, and each number in a kernel that no recipe made, depends on the
sizes (:mod:`..passes.sizes`); the program of the bounds is what is built.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionError, TvmExtError
from ..core.instruments import Instruments
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.settings.states import Axes
from ..frontend.reading.reader import Source
from ..runtime.sizes.symbols import Symbol
from ..runtime.spec import TensorSpec
from .lower import NO_INSTRUMENTS, SCHEDULED, Clock, Lowered, Programs, start, with_bodies
from .lowest import LEAST, probe_near, unlike, unlike_outputs, unlike_regions, with_windows
from .probes import common_sizes, probes_of

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..frontend.importer import Imported
    from ..passes.pipeline import Pipeline
    from ..passes.sizes.alignment import Alignment
    from ..passes.sizes.share_layouts import StoredWeights

#: Sizes at which a model is lowered, at most: a small one is added, and those that tell expressions apart.
_MOST_PROBES = 10
#: Passes that choose by size, or make views of what is no view in arrays of the bounds.
_LEFT_OUT = ("fuse-expansions", "fuse-products", "view-reshapes")


class _OutdoneError(Exception):
    """What a converter decided at other sizes is decided anew: at these it needs more."""


class LoweringAtBounds:
    """One attempt, with sizes that are multiples of one number."""

    def __init__(
        self, source: Source, options: CompileOptions, machine: Machine, clock: Clock, symbols: Sequence[Symbol],
        instruments: Instruments, stored: StoredWeights | None = None,
    ) -> None:  # fmt: skip
        from ..core.numbers.storage import Growth
        from ..core.sizes import Sizes
        from ..passes.sizes.solver import Solver
        from ..precision.sensitivity import measured

        self._source, self._options, self._machine, self._clock = source, options, machine, clock
        self._instruments, self._symbols, self._stored = instruments, tuple(symbols), stored
        bounds = {symbol.name: symbol.bound for symbol in symbols}
        self._sensitivity = measured(source, options.at(bounds))  # once: what keeps float32 is the same at all sizes
        self._sizes = Sizes.of(self._symbols)
        self._probes, self._growth = probes_of(self._symbols), Growth()
        self._solver, self._small = Solver(self._sizes, self._probes), 0
        self._shared: dict[Hashable, Any] = {}
        self._first: Imported | None = None
        self._positions_first = False  # they are computed before what reads them is folded

    def run(self, inputs: Sequence[TensorSpec], grows: Axes) -> Programs:
        """All passes; see :func:`lower_any_size`.

        Raises:
            NotAlike: the programs of different sizes are not one.
            TvmExtError: the model cannot be imported at a size.
        """
        from ..passes.sizes.generalize import ConstantsDiffer

        lowered, self._grows = None, grows
        while lowered is None:
            try:
                lowered = self._attempt(inputs)
            except ConstantsDiffer:
                if self._positions_first:
                    raise
                self._positions_first = True
            except _OutdoneError:
                pass
        return lowered

    def _attempt(self, inputs: Sequence[TensorSpec]) -> Programs | None:
        """All passes; None if another size is tried from now on."""
        from ..core.numbers.storage import Growth
        from ..passes.lowering.choose_recipes import ChooseRecipes
        from ..passes.lowering.group_operations import GroupOperations
        from ..passes.pipeline import Pipeline
        from ..passes.sizes.alignment import Alignment, annotated
        from ..passes.sizes.copy_reshapes import copied_reshapes
        from ..passes.sizes.generalize import NotAlike

        programs = [self._start(probe) for probe in self._probes]
        self._check_states(programs[0], inputs)
        imports = [program.mod for program in programs]
        if self._positions_first:
            programs = self._computing(programs, Alignment(imports, self._solver).following)
        pipeline = Pipeline.of(self._options).before(ChooseRecipes).without(*_LEFT_OUT)
        programs = self._after(pipeline.before(GroupOperations), programs)
        alignment = Alignment([program.mod for program in programs], self._solver)
        varying = alignment.varying
        lowest = self._proven(imports, alignment)
        if lowest is None:
            return None
        programs = self._computing(programs, varying)
        programs = self._after(pipeline.from_("group-operations"), programs)
        alignment = Alignment([program.mod for program in programs], self._solver)
        if alignment.varying:
            raise NotAlike("a constant has other values at other sizes", min(alignment.varying)[0])
        programs[0] = replace(programs[0], mod=annotated(alignment, [program.mod for program in programs]))
        programs, alignment = self._fused(programs, alignment)
        programs = self._chosen(programs, {site.callees[0]: site.callees for site in alignment.sites})
        programs = self._with_kernels(programs, copied_reshapes(programs[0].mod, alignment, self._solver))
        alignment = Alignment([program.mod for program in programs], self._solver, values=False)
        self._check_outputs(alignment, lowest.mod)
        lowered = self._bound(programs, alignment)
        if self._tries():
            return None
        self._clock.lap("passes")
        outputs = self._outputs(lowered, alignment)
        least = lowest.imported if lowest.ctx.fact(Growth).alone else None
        lowered = with_bodies(replace(lowered, symbols=self._symbols))
        return Programs(tuple(inputs), outputs, (lowered,), self._symbols, least=least)

    def _computing(self, programs: Sequence[Lowered], places: Mapping[tuple[str, int], bool]) -> list[Lowered]:
        """The programs with kernels for constants at these places (:class:`..passes.sizes.compute_constants`)."""
        from ..passes.sizes.compute_constants import ComputeConstants

        return [replace(p, mod=ComputeConstants(places)(p.mod, p.ctx).mod) for p in programs]

    def _proven(self, imports: Sequence[IRModule], alignment: Alignment) -> Lowered | None:
        """The model as it is imported at the smallest sizes, where everything follows from the sizes tried; None if it
        does not, or several expressions do: another size is tried from now on.

        Raises:
            NotAlike: a small size was tried, and it does not follow; or several expressions fit at the most sizes.
        """
        from ..passes.sizes.generalize import NotAlike

        self._symbols = with_windows(self._symbols, alignment.windows)
        if none := [symbol for symbol in self._symbols if symbol.least > symbol.most]:
            raise NotAlike(f"no size of {none[0].name} from {none[0].low} to {none[0].high} is a multiple it takes")
        low, strict = self._start(self._lows), not self._small or self._chooses
        why = unlike(imports, low.mod, self._lows, self._solver, ops=strict)
        if not why and len(self._symbols) > 1:
            mixed = self._mixed
            why = unlike(imports, self._start(mixed).mod, mixed, self._solver, ops=strict)
        if why:
            if self._small == len(LEAST) or len(self._probes) >= _MOST_PROBES:
                raise NotAlike(why)
            self._try(probe_near(self._symbols, self._probes, LEAST[self._small]))
            self._small += 1
            return None
        if self._tries(bool(alignment.varying)) or (self._solver.leans and self._differs(imports, strict)):
            return None
        return low

    def _differs(self, imports: Sequence[IRModule], strict: bool) -> bool:
        """Whether something does not follow at one of two sizes between; that is tried from now on.

        Raises:
            NotAlike: the most sizes were tried.
        """
        from ..passes.sizes.generalize import NotAlike

        between = self._between
        for place in dict.fromkeys((len(between) // 2, len(between) // 4)) if between else ():
            sizes = between[place]
            try:
                other = self._start(sizes).mod
            except TvmExtError:
                continue  # no size of the model: there is nothing to compare
            if why := unlike(imports, other, sizes, self._solver, ops=strict):
                if len(self._probes) >= _MOST_PROBES:
                    raise NotAlike(why)
                self._try(sizes)
                return True
        return False

    @property
    def _between(self) -> list[Mapping[str, int]]:
        """Sizes beside those that were tried, no smaller than windows, and no two the same."""
        lows = self._lows
        return [
            sizes
            for sizes in self._solver.samples
            if sizes not in self._probes
            and len({*sizes.values()}) == len(sizes)
            and all(lows[name] < size for name, size in sizes.items())
        ]

    def _tries(self, varying: bool = False) -> bool:
        """Whether another size is tried from now on: several expressions fit, or a constant that varies is guessed.

        Raises:
            NotAlike: several fit, and the most sizes were tried.
        """
        from ..passes.sizes.generalize import NotAlike

        solver = self._solver
        telling = [*solver.doubts.values()]
        if len(self._probes) >= _MOST_PROBES:
            if telling:
                raise NotAlike(
                    f"several expressions have the values {list(next(iter(solver.doubts)))} at the sizes tried"
                )
            return False
        if varying and solver.guessed:
            telling += self._between
        if telling:
            self._try(telling[0])
        return bool(telling)

    def _try(self, probe: Mapping[str, int]) -> None:
        """Lower the model at one more size."""
        from ..passes.sizes.solver import Solver

        self._probes = (*self._probes[:-1], probe, self._probes[-1])  # the last one stays the small one
        self._solver = Solver(self._sizes, self._probes)

    def _check_states(self, lowered: Lowered, inputs: Sequence[TensorSpec]) -> None:
        """Raises OptionError for a state that has symbolic sizes, but for one that grows along an axis of its own."""
        for output, taken in lowered.ctx.states:
            spec = inputs[taken]
            axis = lowered.imported.inputs[taken].axis_of_growth(lowered.imported.outputs[output])
            symbolic = {number for number, dim in enumerate(spec.shape) if isinstance(dim, str)}
            free = symbolic == {axis} and str(spec.shape[axis or 0]).isidentifier()
            if not (free or (not symbolic and (axis is None or (spec.name, axis) in self._grows))):
                wrong = f"input {spec.name!r} is {spec}, and a state has one size in all calls, or grows along one axis"
                fix = f"give numbers for its dimensions, as many rows as it is to hold: shapes={{{spec.name!r}: ...}}"
                raise OptionError(f"{self._source.name}: state: {wrong}", fix=fix)

    def _check_outputs(self, alignment: Alignment, low: IRModule) -> None:
        from ..passes.sizes.generalize import NotAlike

        if why := unlike_outputs(alignment.results, low, self._lows):
            raise NotAlike(why)

    @property
    def _chooses(self) -> bool:
        """Whether the model has branches: then other operators compute something else."""
        return any(node.op_type == "If" for node in self._source.proto.graph.node)

    @property
    def _mixed(self) -> dict[str, int]:
        """The largest symbol at its smallest size, with the others at their largest ones."""
        largest = max(self._symbols, key=lambda symbol: symbol.bound)
        return {**self._probes[0], largest.name: largest.low}

    @property
    def _lows(self) -> dict[str, int]:
        return {symbol.name: symbol.low for symbol in self._symbols}

    def _start(self, probe: Mapping[str, int]) -> Lowered:
        """The model after its import, at some sizes.

        Raises:
            NotAlike: part of it has no program of its own.
            _OutdoneError: a decision of the programs before it does not hold at these sizes.
        """
        from ..core.numbers.storage import Growth
        from ..frontend.importer import import_model
        from ..passes.sizes.generalize import NotAlike

        instruments = self._instruments if probe is self._probes[0] else NO_INSTRUMENTS
        options, growth = self._options.at(probe), self._growth.again()
        imported = import_model(self._source, options, growth=growth)
        if growth.outdone:
            raise _OutdoneError
        begun = start(
            self._source, options, self._machine, self._clock, instruments, sensitivity=self._sensitivity,
            imported=imported, grows=self._grows,
        )  # fmt: skip
        begun.ctx.facts[Growth] = growth
        begun.ctx.shared, begun.ctx.beside = self._shared, probe is not self._probes[0]
        if probe is self._probes[0] or self._first is None:
            self._first = imported
        if why := unlike_regions(imported, self._first):
            raise NotAlike(why)
        return begun

    @staticmethod
    def _after(pipeline: Pipeline, programs: Sequence[Lowered]) -> list[Lowered]:
        return [replace(program, mod=pipeline.run(program.mod, program.ctx)) for program in programs]

    def _fused(self, programs: list[Lowered], alignment: Alignment) -> tuple[list[Lowered], Alignment]:
        """The programs with groups fused where that pays at the bounds and at more common sizes."""
        from ..passes.lowering.fuse_expansions import fused_alike
        from ..passes.sizes.alignment import Alignment, annotated

        if not (mods := fused_alike([(p.mod, p.ctx) for p in programs], common_sizes(self._symbols))):
            return programs, alignment
        alignment = Alignment(mods, self._solver)
        mods[0] = annotated(alignment, mods)
        return [replace(program, mod=mod) for program, mod in zip(programs, mods, strict=True)], alignment

    def _chosen(self, programs: Sequence[Lowered], groups: Mapping[str, Sequence[str]]) -> list[Lowered]:
        """The programs with recipes for the groups of the first, and the same plans for those of the others."""
        from ..passes.lowering.choose_recipes import ChooseRecipes
        from ..passes.sizes.choose_for_sizes import ChooseForSizes
        from ..passes.sizes.share_layouts import ShareLayouts

        first, ctx = programs[0], programs[0].ctx
        chosen = ChooseForSizes(common_sizes(self._symbols))(ChooseRecipes()(first.mod, ctx).mod, ctx)
        first = replace(first, mod=chosen.mod)
        if self._stored is not None:
            first = replace(first, mod=ShareLayouts(self._stored)(first.mod, ctx).mod)
        for number, other in enumerate(programs[1:], start=1):
            other.ctx.plans.update((groups[name][number], plan) for name, plan in first.ctx.plans.items())
        return [first, *programs[1:]]

    def _with_kernels(self, programs: Sequence[Lowered], copied: frozenset[str]) -> list[Lowered]:
        """The programs up to the kernels that no recipe made; those of recipes have bodies in the first alone."""
        from ..passes.lowering.assign_layouts import AssignLayouts
        from ..passes.pipeline import Pipeline
        from ..passes.sizes.copy_reshapes import CopyReshapes

        rest = Pipeline.of(self._options).before("lower-rest").after("choose-recipes").without(*_LEFT_OUT)
        others = rest.without("schedule-kernels").replacing(AssignLayouts(interfaces=True))
        return [
            replace(program, mod=way.run(CopyReshapes(copied)(program.mod, program.ctx).mod, program.ctx))
            for program, way in zip(programs, [rest, *[others] * (len(programs) - 1)], strict=True)
        ]

    def _bound(self, programs: Sequence[Lowered], alignment: Alignment) -> Lowered:
        """The program of the bounds, whose kernels take the sizes."""
        from ..passes.pipeline import Pipeline
        from ..passes.sizes.bind_sizes import BindSizes
        from ..passes.sizes.sized_kernels import SizedKernels

        first = programs[0]
        kernels = SizedKernels([p.mod for p in programs], first.ctx, self._sizes, self._solver, alignment.sites)
        mod = BindSizes(self._sizes, kernels.sites, kernels.functions)(first.mod, first.ctx).mod
        last = Pipeline.of(self._options).before(SCHEDULED).from_("lower-rest")
        return replace(first, mod=last.run(mod, first.ctx))

    def _outputs(self, lowered: Lowered, alignment: Alignment) -> tuple[TensorSpec, ...]:
        """The outputs of the model, with symbolic dimensions."""
        extents = alignment.results
        return tuple(
            replace(spec, shape=tuple(self._sizes.text(extent) for extent in extents[number]))
            for number, spec in enumerate(lowered.imported.outputs)
        )
