"""Programs beside the one of any size: of sizes that `specialize` names, and of dimensions without elements.

x[N, S], S from 0 to 512, specialize={"S": (32, 128)}   ->   main: N, S >= 1; main_S32: N; main_S128: N; main_S0: N

A size that is fixed is a number when such a program is imported: with 0, what is empty, and what becomes of that, is
decided there, as for a model of numbers.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.errors import ModelError, OptionError, UnsupportedError
from ..core.instruments import Instruments
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.settings.states import growing_axes
from ..frontend.reading.reader import Source
from ..passes.lowering.assign_layouts import AssignLayouts
from ..passes.pipeline import Pipeline
from ..passes.sizes.share_layouts import ShareLayouts, StoredWeights
from ..runtime.sizes.symbols import Symbol, sizes_text
from ..runtime.spec import TensorSpec
from .any_size import lower_any_size
from .lower import SCHEDULED, Clock, Lowered, Programs, run_pipeline, start

#: Programs beside the one of any size that `specialize` may ask for, and symbols that may be 0 in all combinations.
_MOST, _MOST_EMPTY = 64, 4


def lower_with_exact(
    source: Source, options: CompileOptions, machine: Machine, clock: Clock, instruments: Instruments
) -> Programs:
    """One program for all sizes within bounds, and behind it those of which some sizes are fixed.

    A smallest size of 0 is 1 in the result where the model is not defined for it; its warnings say why.

    Raises:
        UnsupportedError: there is no program of any size, or none of a size that `specialize` names.
        OptionError: a size of `specialize` is none that the program of any size takes; or too many programs.
    """
    positive = tuple((name, (max(low, 1), high)) for name, (low, high) in options.dims)
    general = lower_any_size(source, replace(options, dims=positive), machine, clock, instruments)
    asked, zero = [*_asked(options, general.symbols)], [name for name, (low, _) in options.dims if low == 0]
    if not asked and not zero:
        return general
    stored = StoredWeights(general.lowered[0].ctx)
    beside = _Beside(source, options, machine, clock, instruments, general, stored)
    exact = [beside.lowered(sizes) for sizes in asked]
    empty, warnings = beside.empty(zero)
    nothing = {name for item in empty for name in item.fixed}
    symbols = tuple(replace(item, low=0) if item.name in nothing else item for item in general.symbols)
    return replace(general, lowered=(*general.lowered, *exact, *empty), symbols=symbols, warnings=warnings)


def _asked(options: CompileOptions, symbols: Sequence[Symbol]) -> Iterator[dict[str, int]]:
    """Each combination of the sizes that `specialize` names.

    Raises:
        OptionError: the program of any size does not take one, or there are too many.
    """
    known = {symbol.name: symbol for symbol in symbols}
    for name, sizes in options.specialize:
        for size in sizes:
            if wrong := known[name].why_not(size):
                raise OptionError(f"specialize: {wrong}", fix=known[name].fix_for(size))
    names = [name for name, _ in options.specialize]
    count = math.prod(len(sizes) for _, sizes in options.specialize)
    if count > _MOST:
        fix = f"name fewer sizes; each combination is a compile of its own, and at most {_MOST} are made"
        raise OptionError(f"specialize: {count} programs", fix=fix)
    for point in itertools.product(*dict(options.specialize).values()) if names else ():
        yield dict(zip(names, point, strict=True))


@dataclass(frozen=True)
class _Beside:
    """Programs of one model in which sizes are fixed, over the weights of the program of any size."""

    source: Source
    options: CompileOptions
    machine: Machine
    clock: Clock
    instruments: Instruments
    general: Programs
    stored: StoredWeights

    def lowered(self, fixed: Mapping[str, int]) -> Lowered:
        """The program in which some symbols have these sizes.

        Raises:
            UnsupportedError: there is none, or its outputs have other shapes than the program of any size says.
        """
        shapes = tuple((spec.name, spec.shape) for spec in self.general.inputs)
        bounds = tuple((programs.name, (programs.low, programs.high)) for programs in self.general.symbols)
        own = replace(self.options, shapes=shapes, dims=bounds).at(fixed)
        try:
            programs = self._programs(own, fixed)
        except (UnsupportedError, ModelError) as error:
            raise UnsupportedError(f"with {sizes_text(fixed)}: {error.message}", fix=error.fix) from error
        lowered = programs.lowered[0]
        for end in ("low", "high"):
            sizes = {**fixed, **{symbol.name: getattr(symbol, end) for symbol in programs.symbols}}
            if why := _unlike(programs.outputs, self.general.outputs, sizes):
                raise UnsupportedError(f"{self.source.name}: with {sizes_text(sizes)}: {why}")
        self.stored.add(lowered.ctx)
        return replace(lowered, fixed=dict(fixed), symbols=programs.symbols)

    def _planned(self, fixed: Mapping[str, int]) -> dict[str, int]:
        """The sizes to plan free symbols at, so that a state which grows has the memory that it has in the program of
        any size: past[P] -> present[P + S], planned at P = 48, S = 8 there, at P = 55 where S is 1.

        Empty where no state grows along a free symbol: with P fixed a row of it is shorter than one of that memory.
        """
        first = self.general.lowered[0]
        planned = {symbol.name: symbol.bound for symbol in first.symbols}
        grown: dict[str, int] = {}
        for output, number in first.ctx.states:
            grown_spec, taken = self.general.outputs[output], self.general.inputs[number]
            axis = taken.axis_of_growth(grown_spec)
            if axis is not None and (name := str(taken.shape[axis])) not in fixed:
                whole, here = (grown_spec.sized(sizes).sizes[axis] for sizes in (planned, {**planned, **fixed}))
                grown[name] = planned[name] + whole - here
        return {**{name: size for name, size in planned.items() if name not in fixed}, **grown} if grown else {}

    def _programs(self, own: CompileOptions, fixed: Mapping[str, int]) -> Programs:
        how, grows = (self.machine, self.clock, self.instruments), growing_axes(self.general.inputs)
        if own.symbols:
            return lower_any_size(self.source, own, *how, self.stored, grows, self._planned(fixed))
        least = self.general.least if fixed == {symbol.name: symbol.low for symbol in self.general.symbols} else None
        begun = run_pipeline(start(self.source, own, *how, imported=least, grows=grows), AssignLayouts.name)
        if begun.imported.regions or begun.bodies:
            raise UnsupportedError(f"{self.source.name}: a part of it runs beside the program")
        mod = ShareLayouts(self.stored)(begun.mod, begun.ctx).mod
        rest = Pipeline.of(begun.ctx.options).before(SCHEDULED)
        lowered = replace(begun, mod=rest.from_(AssignLayouts.name).run(mod, begun.ctx))
        return Programs(lowered.imported.inputs, lowered.imported.outputs, (lowered,))

    def empty(self, names: Sequence[str]) -> tuple[tuple[Lowered, ...], tuple[str, ...]]:
        """Programs in which symbols are 0, each set of them; and why some symbols cannot be.

        Args:
            names: of symbols whose smallest size is stated as 0.

        Raises:
            OptionError: there are too many.
        """
        if len(names) > _MOST_EMPTY:
            fix = f"state 1 as the smallest size of some: each set of them has a program, of at most {_MOST_EMPTY}"
            raise OptionError(f"dims: {len(names)} dimensions have a smallest size of 0: {', '.join(names)}", fix=fix)
        least = {item.name: item.low <= item.multiple for item in self.general.symbols}
        able = [name for name in names if least[name]]
        warnings = [f"dims: {name} cannot be 0: nor can it be other small sizes" for name in names if not least[name]]
        programs: dict[tuple[str, ...], Lowered] = {}
        for count in range(1, len(able) + 1):
            for chosen in itertools.combinations(tuple(able), count):
                if not {*chosen} <= {*able}:
                    continue
                try:
                    programs[chosen] = self.lowered(dict.fromkeys(chosen, 0))
                except UnsupportedError as error:
                    able.remove(chosen[-1])
                    warnings.append(f"dims: {chosen[-1]} cannot be 0: {error.message[:300]}")
        kept = (item for chosen, item in programs.items() if {*chosen} <= {*able})
        return tuple(kept), tuple(warnings)


def _unlike(outputs: Sequence[TensorSpec], stated: Sequence[TensorSpec], sizes: Mapping[str, int]) -> str:
    """Which output has another shape at these sizes than is stated; "" if none has."""
    if [spec.name for spec in outputs] != [spec.name for spec in stated]:
        return "a sequence among its outputs has another length"
    for own, other in zip(outputs, stated, strict=True):
        try:
            shape: object = other.sized(sizes).shape
        except ZeroDivisionError:
            shape = f"{other} of no size"
        if own.sized(sizes).shape != shape:
            return f"output {own.name!r} is {own.sized(sizes).shape}, and {shape} follows from other sizes"
    return ""
