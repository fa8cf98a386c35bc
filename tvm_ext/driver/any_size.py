"""A model of symbolic sizes as one program, planned at their bounds.

The model is lowered several times, with numbers: at the bounds, and at a few other sizes with the decisions of the
bounds. Side by side these programs tell how each shape, and each number in a kernel that no recipe made, depends on the
sizes (:mod:`..passes.sizes`); the program of the bounds is what is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core.errors import TvmExtError, UnsupportedError
from ..core.instruments import Instruments
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.recipe import Miss
from ..frontend.reading.reader import Source
from ..runtime.sizes import Symbol
from ..runtime.spec import TensorSpec
from .lower import NO_INSTRUMENTS, Clock, Lowered, start

if TYPE_CHECKING:
    from tvm import tirx
    from tvm.ir import IRModule

    from ..core.passes import Pass
    from ..core.sizes import Sizes
    from ..passes.sizes.alignment import Alignment, Site
    from ..passes.sizes.solver import Solver

#: Sizes of other programs, as parts of the largest size where that is not small.
_PARTS = (0.55, 0.39, 0.68, 0.2)
#: Sizes of other programs where the largest size is small: nothing runs at them.
_PRIMES = (37, 53, 61, 71, 83, 97, 103, 109)
_SMALL = 16
#: Passes that choose by size, or make views of what is no view in arrays of the bounds.
_LEFT_OUT = ("fuse-expansions", "view-reshapes")
_STEPS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class AnySize:
    """A program for all sizes.

    Attributes:
        lowered: the program, after all passes.
        symbols: with the bounds it is planned at.
        inputs, outputs: of the model; dimensions are numbers, names, or text over names.
    """

    lowered: Lowered
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def lower_any_size(
    source: Source, options: CompileOptions, machine: Machine, clock: Clock, inputs: Sequence[TensorSpec],
    instruments: Instruments = NO_INSTRUMENTS,
) -> AnySize:  # fmt: skip
    """Import a model of symbolic sizes, and run all passes.

    Args:
        inputs: of the model, with symbolic dimensions.

    Raises:
        UnsupportedError: it cannot be one program; names the node, and why.
    """
    from ..passes.sizes.alignment import NotAlike

    reasons: list[str] = []
    for step in _STEPS:
        symbols = tuple(replace(one, multiple=step) for one in options.symbols)
        if any(one.high // step < 3 and step > 1 for one in symbols):
            break
        try:
            return _Lowering(source, options, machine, clock, symbols, instruments).run(inputs)
        except NotAlike as error:
            reasons.append(error.reason + (f" (at {error.variable!r})" if error.variable else ""))
        except TvmExtError as error:
            reasons.append(error.message[:300])
    raise UnsupportedError(
        f"{source.name}: it cannot be compiled for every size of {', '.join(s.name for s in options.symbols)}: {reasons[0]}",
        fix="give numbers for some dimensions: shapes=",
    )


class _Lowering:
    """One attempt, with sizes that are multiples of one number."""

    def __init__(
        self, source: Source, options: CompileOptions, machine: Machine, clock: Clock, symbols: Sequence[Symbol],
        instruments: Instruments,
    ) -> None:  # fmt: skip
        from ..core.sizes import Sizes

        self._source, self._options, self._machine, self._clock = source, options, machine, clock
        self._symbols = tuple(symbols)
        self._instruments = instruments
        self.sizes = Sizes.of(self._symbols)
        self.probes = probes_of(self._symbols)

    def run(self, inputs: Sequence[TensorSpec]) -> AnySize:
        from ..passes.pipeline import Pipeline
        from ..passes.sizes.alignment import Alignment, annotated
        from ..passes.sizes.solver import Solver

        begun = [self._start(number) for number in range(len(self.probes))]
        before = Pipeline.of(self._options).before("choose-recipes").without(*_LEFT_OUT)
        modules = [before.run(one.mod, one.ctx) for one in begun]
        solver = Solver(self.sizes, self.probes)
        alignment = Alignment(modules, solver)
        modules[0] = annotated(alignment, modules)
        names = {site.callees[0]: site.callees for site in alignment.sites}
        modules[0] = self._chosen(begun, modules[0], names, modules)
        raise NotImplementedError
