"""A model of symbolic sizes as one program: the sizes at which that is planned, in turn, until one is a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.errors import OptionError, TvmExtError, UnsupportedError
from ..core.instruments import Instruments
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.settings.states import Axes, growing_axes
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import Source
from ..frontend.reading.shapes import input_specs
from ..runtime.sizes.symbols import Symbol
from ..runtime.spec import TensorSpec
from .at_bounds import LoweringAtBounds
from .lower import NO_INSTRUMENTS, Clock, Programs
from .lowest import place_text
from .probes import merged, moved, plans_of

if TYPE_CHECKING:
    from ..passes.sizes.share_layouts import StoredWeights

#: How often the sizes to plan at are moved, at most.
_MOST_MOVES = 3


def lower_any_size(
    source: Source, options: CompileOptions, machine: Machine, clock: Clock, instruments: Instruments = NO_INSTRUMENTS,
    stored: StoredWeights | None = None, grows: Axes | None = None, at: Mapping[str, int] | None = None,
) -> Programs:  # fmt: skip
    """Import a model of symbolic sizes, and run all passes: one program.

    Args:
        stored: weights that the artifact has already; None of the first program.
        grows: (name of an input, axis) along which a state may grow; None for those that are symbolic here.
        at: sizes to plan at, if the model is one program there.

    Raises:
        UnsupportedError: it cannot be one program; names the node, and why.
    """
    from ..passes.sizes.generalize import NotAlike

    graph = frozen_source(source, options.freeze).proto.graph
    reasons: list[str] = []
    refused: list[str] = []  # by sizes: finer ones than the model takes, where coarser ones have a reason
    other = merged(options)
    for named in (options, other) if other != options else (options,):
        inputs = input_specs(graph, dict(named.shapes), source.name)
        for symbols in plans_of(named, at):
            try:
                how = (source, named, machine, clock)
                way = functools.partial(LoweringAtBounds, *how, instruments=instruments, stored=stored)
                return _lowered(way, symbols, inputs, growing_axes(inputs) if grows is None else grows)
            except OptionError:
                raise
            except NotAlike as error:
                reasons.append(error.reason + place_text(error.variable, graph))
                stated = all(symbol.bound == (at or {}).get(symbol.name) for symbol in symbols)
                if len({symbol.bound for symbol in symbols}) == len(symbols) and not stated:
                    break  # no other sizes will make them one
            except TvmExtError as error:
                refused.append(error.message[:300])
                if isinstance(error, UnsupportedError) and any(symbol.multiple > 1 for symbol in symbols):
                    break  # coarser sizes help branches that do not meet, and no converter
    names = ", ".join(symbol.name for symbol in options.symbols)
    raise UnsupportedError(
        f"{source.name}: it cannot be compiled for every size of {names}: {(reasons or refused)[0]}",
        fix="give numbers for some dimensions: shapes=",
    )


def _lowered(
    begun: Callable[[Sequence[Symbol]], LoweringAtBounds], symbols: Sequence[Symbol], inputs: Sequence[TensorSpec],
    grows: Axes,
) -> Programs:  # fmt: skip
    """All passes, planned at larger sizes where two dimensions are equal at the bounds.

    Raises:
        NotAlike, TvmExtError: see :meth:`LoweringAtBounds.run`.
    """
    from ..passes.sizes.generalize import EqualAtBounds

    for count in range(_MOST_MOVES):
        try:
            return begun(moved(symbols, count)).run(inputs, grows)
        except EqualAtBounds:
            continue
    return begun(moved(symbols, _MOST_MOVES)).run(inputs, grows)
