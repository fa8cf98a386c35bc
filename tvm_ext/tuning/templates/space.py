"""A space of configurations, under the names of AutoTVM: knobs with choices, and filters over them.

    space = ConfigSpace()
    space.define_split("tile_x", 512, num_outputs=3)                # [512, 1, 1], [256, 2, 1], ...: 55 choices
    space.define_annotate("ann", ["k", "xi"], policy="try_unroll_vec")
    space.multi_filter(lambda entity: entity["tile_x"].size[-1] >= 8 or "vec" not in entity["ann"].anns)
    len(space)            # 440, filtered ones included
    space.at(17)          # {"tile_x": [...], "ann": [...]}, plain JSON values
    space.sample(np.random.default_rng(0), 10)

A point's number has one digit a knob (mixed radix, the first knob the lowest digit, as in AutoTVM), so the points are
never listed: a space of 10^8 points costs what its knobs cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm.s_tir import Schedule

from ...core.errors import OptionError
from ...core.recipe import Config
from .choices import Axis, Choices, Filter, plain
from .entities import Entity, InstantiationError
from .policies import annotate_choices, reorder_choices, split_choices

#: Spaces up to this size are walked in random order when sampled, so that every legal point is found.
_WALKED = 1 << 16
#: Draws a wanted configuration may take in larger spaces, where few points are legal.
_DRAWS = 200
#: Attempts to find a legal neighbour.
_ATTEMPTS = 64


class ConfigEntity:
    """One configuration as a template sees it: `cfg["tile_x"].apply(sch, loop)`.

    Definitions are taken as made, so that a template runs alike while its space is collected and when it is applied.
    """

    def __init__(self, space: ConfigSpace, config: Mapping[str, Any]) -> None:
        self._space, self.config = space, config

    def __getitem__(self, name: str) -> Entity:
        choices = self._space.choices(name)
        return choices.entity(self.config[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._space)

    def _defined(self, name: str, *args: Any, **options: Any) -> list[Axis]:
        return self._space.choices(name).axes

    define_split = define_reorder = define_annotate = define_knob = _defined

    def axis(self, axis: Any) -> Any:
        """The axis; its extent is known already."""
        return axis

    reduce_axis = axis

    def multi_filter(self, filter: Callable[[ConfigEntity], object]) -> None:
        """Nothing: the configuration has passed the filters of its space."""

    def add_flop(self, flop: float) -> None:
        """Nothing: the space has the number of operations."""

    def raise_error(self, message: str) -> None:
        """Refuse the configuration.

        Raises:
            InstantiationError: always.
        """
        raise InstantiationError(message)


class ConfigSpace:
    """Knobs with their choices, as AutoTVM's `define_*` state them, and the points they make.

    Args:
        schedule: lets axes be given as its loops; templates are called with such a space.

    Attributes:
        flop: what :meth:`add_flop` added up; 0 if it was not called.
    """

    def __init__(self, schedule: Schedule | None = None) -> None:
        self._schedule = schedule
        self._knobs: dict[str, Choices] = {}
        self._filters: list[Callable[[ConfigEntity], object]] = []
        self._legal: Callable[[Config], object] | None = None
        self.flop = 0.0

    @classmethod
    def of(cls, choices: Mapping[str, Sequence[Any]], legal: Callable[[Config], object] | None = None) -> ConfigSpace:
        """A space of knobs whose choices are listed, as a recipe's are.

        Args:
            choices: knob -> its choices.
            legal: whether a configuration may be tried; None: all may.

        Raises:
            OptionError: a knob without choices, or a choice that is no JSON value.
        """
        space = cls()
        for name, values in choices.items():
            space.define_knob(name, values)
        space._legal = legal
        return space

    # ---------------------------------------------------------------------------------------- definitions
    def axis(self, axis: Any) -> Axis:
        """An axis of so many iterations, or of a loop of the schedule.

        Raises:
            OptionError: the extent is not known.
        """
        if isinstance(axis, Axis):
            return axis
        if self._schedule is not None and not isinstance(axis, int):
            axis = getattr(self._schedule.get(axis).extent, "value", None)
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise OptionError(f"{axis!r} is no axis of a known extent", fix="give the extent as a whole number")
        return Axis("", axis)

    reduce_axis = axis

    def define_split(
        self, name: str, axis: Any, policy: str = "factors", *, num_outputs: int = 2, filter: Filter | None = None,
        max_factor: int | None = None, no_tail: bool | None = None, candidate: Sequence[Sequence[int]] | None = None,
    ) -> list[Axis]:  # fmt: skip
        """Split an axis into several.

        Args:
            name: of the knob; its entity has `size` and `apply(sch, loop)`.
            axis: its extent, or a loop of the schedule.
            policy: sizes of the inner axes: "factors" (those that divide), "power2" (powers of two, with a rest),
                "verbose" (both), or "candidate".
            num_outputs: axes it becomes.
            filter: entity -> whether it is a choice: `lambda entity: entity.size[-1] <= 16`.
            max_factor: the largest size of an inner axis.
            no_tail: whether sizes have to divide; by default with "factors" only.
            candidate: lists of sizes, outermost first (-1: what is left), with policy="candidate".

        Returns:
            The new axes, outermost first, for :meth:`define_reorder` and :meth:`define_annotate`.

        Raises:
            OptionError: an unknown policy, a candidate that does not cover the axis, or no choice is left.
        """
        extent = self.axis(axis).extent
        return self._add(split_choices(name, extent, policy, num_outputs, max_factor, no_tail, candidate, filter))

    def define_reorder(
        self, name: str, axes: Sequence[Any], policy: str = "all", *, candidate: Sequence[Sequence[Any]] | None = None,
        interval: tuple[int, int] | None = None, spatial: Sequence[Any] = (), reduce: Sequence[Any] = (),
        filter: Filter | None = None,
    ) -> list[Axis]:  # fmt: skip
        """Choose the order of some axes.

        Args:
            name: of the knob; its entity has `perm` and `apply(sch, loops)`.
            axes: names, loops, or what the other definitions returned.
            policy: "all", "identity", "interval_all" (orders of the places begin to end of `interval`), "interleave"
                (one order, made of the chains of axes in `spatial` and `reduce`), or "candidate".
            candidate: orders of `axes`, with policy="candidate".

        Raises:
            OptionError: an unknown policy, or a candidate that is no order of the axes.
        """
        return self._add(reorder_choices(name, axes, policy, candidate, interval, (spatial, reduce), filter))

    def define_annotate(
        self, name: str, axes: Sequence[Any], policy: str, *, candidate: Sequence[Sequence[str]] | None = None,
        filter: Filter | None = None,
    ) -> list[Axis]:  # fmt: skip
        """Choose what is done to each of some axes.

        Args:
            name: of the knob; its entity has `anns` and `apply(sch, loops)`.
            policy: "none", "unroll", "vec", "parallel", after `try_` also not: "try_unroll", "try_unroll_vec", ...;
                or "candidate".
            candidate: lists of "none", "unroll", "vec", "parallel", one an axis, with policy="candidate".

        Raises:
            OptionError: an unknown policy or annotation.
        """
        return self._add(annotate_choices(name, axes, policy, candidate, filter))

    def define_knob(self, name: str, candidate: Iterable[Any]) -> list[Axis]:
        """Any other choice: of JSON values. Its entity has `val`.

        Raises:
            OptionError: no choices, or one that is no JSON value.
        """
        values = [plain(name, value) for value in candidate]
        return self._add(Choices(name, "ot", lambda: values))

    def multi_filter(self, filter: Callable[[ConfigEntity], object]) -> None:
        """Take only configurations for which this holds. They keep their numbers, and `len` counts them all.

        Args:
            filter: entities by knob -> whether to take it: `lambda entity: entity["tile_x"].size[-1] <= 64`.
        """
        self._filters.append(filter)

    def add_flop(self, flop: float) -> None:
        """Add to the floating-point operations of one run; without it they are counted in the function."""
        self.flop += float(flop)

    def raise_error(self, message: str) -> None:
        """What a template calls to refuse its configuration; while the space is collected, nothing is refused."""

    def _add(self, choices: Choices) -> list[Axis]:
        if choices.name in self._knobs:
            raise OptionError(f"knob {choices.name!r} is defined twice", fix="give each knob a name of its own")
        self._knobs[choices.name] = choices
        return choices.axes

    # ---------------------------------------------------------------------------------------- points
    @property
    def knobs(self) -> Mapping[str, Choices]:
        """Knob -> its choices, a sequence that is listed on demand."""
        return self._knobs

    @property
    def kinds(self) -> dict[str, str]:
        """Knob -> AutoTVM's kind of it, as in logs: "sp", "re", "an" or "ot"."""
        return {name: choices.kind for name, choices in self._knobs.items()}

    @property
    def points(self) -> int:
        """Points before filters, however many; `len` fails where Python's largest length is exceeded."""
        return math.prod(len(choices) for choices in self._knobs.values())

    def __len__(self) -> int:
        return self.points

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __getitem__(self, name: str) -> Entity:
        """The first choice of a knob, with which a template runs while its space is collected."""
        choices = self.choices(name)
        return choices.entity(choices.first())

    def choices(self, name: str) -> Choices:
        """Choices of a knob.

        Raises:
            OptionError: it is not defined; names those that are.
        """
        if name not in self._knobs:
            defined = ", ".join(map(repr, self._knobs)) or "none"
            raise OptionError(f"knob {name!r} is not defined; defined: {defined}", fix="define it before it is used")
        return self._knobs[name]

    def at(self, index: int) -> Config:
        """The configuration of a number.

        Raises:
            OptionError: there is no such point.
        """
        if not 0 <= index < self.points:
            raise OptionError(f"point {index} of a space of {self.points} points")
        config: Config = {}
        for name, choices in self._knobs.items():
            index, place = divmod(index, len(choices))
            config[name] = choices[place]
        return config

    def index(self, config: Mapping[str, Any]) -> int:
        """The number of a configuration.

        Raises:
            OptionError: a knob is missing or unknown, or a value is not among its choices.
        """
        for name in config:
            self.choices(name)
        if missing := [name for name in self._knobs if name not in config]:
            raise OptionError(f"the configuration has no value for knob {missing[0]!r}")
        return self._number([choices.index(config[name]) for name, choices in self._knobs.items()])

    def entity(self, config: Mapping[str, Any]) -> ConfigEntity:
        """A configuration as templates and filters see it."""
        return ConfigEntity(self, config)

    def legal(self, config: Config) -> bool:
        """Whether all filters take a configuration."""
        if self._legal is not None and not self._legal(config):
            return False
        return all(keep(self.entity(config)) for keep in self._filters)

    # ---------------------------------------------------------------------------------------- search
    def sample(self, rng: np.random.Generator, count: int, exclude: Collection[int] = ()) -> list[Config]:
        """Distinct legal configurations, drawn evenly; fewer if no more are found.

        Args:
            exclude: numbers of configurations that are not wanted.
        """
        sampled: dict[int, Config] = {}
        for index in self._draws(rng, count):
            if len(sampled) >= count:
                break
            if index not in sampled and index not in exclude and self.legal(config := self.at(index)):
                sampled[index] = config
        return list(sampled.values())

    def _draws(self, rng: np.random.Generator, count: int) -> Iterator[int]:
        """All numbers in random order, or in a large space a bounded number of draws."""
        if self.points <= _WALKED:
            yield from map(int, rng.permutation(self.points))
            return
        for _ in range(_DRAWS * max(count, 16)):
            yield self._number([int(rng.integers(len(choices))) for choices in self._knobs.values()])

    def _number(self, places: Sequence[int]) -> int:
        index = 0
        for place, choices in zip(reversed(places), reversed(self._knobs.values()), strict=True):
            index = index * len(choices) + place
        return index

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """A legal configuration that differs in one knob; the same one again if none is found."""
        names = [name for name, choices in self._knobs.items() if len(choices) > 1]
        for _ in range(_ATTEMPTS if names else 0):
            choices = self._knobs[name := names[int(rng.integers(len(names)))]]
            step = 1 + int(rng.integers(len(choices) - 1))  # never back to the same choice
            other = {**config, name: choices[(choices.index(config[name]) + step) % len(choices)]}
            if self.legal(other):
                return other
        return dict(config)

    def crossover(self, first: Config, second: Config, rng: np.random.Generator) -> Config:
        """A legal configuration with each knob of one of two; the first one again if none is found."""
        for _ in range(_ATTEMPTS):
            picks = rng.integers(2, size=len(self._knobs))
            child = {name: (first, second)[pick][name] for name, pick in zip(self._knobs, picks, strict=True)}
            if self.legal(child):
                return child
        return dict(first)

    def __repr__(self) -> str:
        lines = [f"  {name} ({c.kind}): {len(c)} choices" for name, c in self._knobs.items()]
        return "\n".join([f"ConfigSpace of {self.points} points", *lines])
