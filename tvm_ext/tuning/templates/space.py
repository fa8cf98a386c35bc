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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.errors import OptionError
from ...core.recipe import Config
from .choices import Choices
from .config_entity import ConfigEntity
from .definitions import Definitions
from .entities import Entity

#: Spaces up to this size are walked in random order when sampled, so that every legal point is found.
_WALKED = 1 << 16
#: Draws a wanted configuration may take in larger spaces, where few points are legal.
_DRAWS = 200
#: Attempts to find a legal neighbour.
_ATTEMPTS = 64


class ConfigSpace(Definitions):
    """Knobs with their choices, and the points they make.

    Args:
        schedule: lets axes be given as its loops; templates are called with such a space.
    """

    _legal: Callable[[Config], object] | None = None

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
        index = 0
        for name, choices in reversed(self._knobs.items()):
            index = index * len(choices) + choices.index(config[name])
        return index

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
        found: dict[int, Config] = {}
        for index in self._draws(rng, count):
            if len(found) >= count:
                break
            if index not in found and index not in exclude and self.legal(config := self.at(index)):
                found[index] = config
        return list(found.values())

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
