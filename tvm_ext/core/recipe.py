"""What a recipe is: it recognises a group, costs its configurations, and makes and schedules the kernel."""

from __future__ import annotations

import abc
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .cost.sharing import Sharing
from .group import Group
from .layout import Layout
from .machine import Machine

if TYPE_CHECKING:
    from tvm import tirx
    from tvm.s_tir import Schedule

Config = dict[str, Any]
"""Knob -> value; plain JSON values, so that it can be logged, cached and compared."""


@dataclass(frozen=True)
class Match:
    """A group that a recipe takes, with what the recipe read out of it."""

    group: Group
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.facts[name]
        except KeyError:
            raise AttributeError(f"match of {self.group.name} has no fact {name!r}") from None


@dataclass(frozen=True)
class Miss:
    """A group that a recipe does not take, and why."""

    reason: str


@dataclass(frozen=True)
class Layouts:
    """The layout of each parameter, in order, and of the result."""

    params: tuple[Layout, ...]
    output: Layout

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.params))} -> {self.output}"


class Recipe(abc.ABC):
    """A schedule recipe. One recipe serves the compile without tuning, and tuners that search its space.

    Attributes:
        name: unique, lower case with underscores; kernels, reports and records name it.
        version: a whole number, raised when a configuration means something else than before.
        anchors: operator names of the groups it may take.
        exact: whether it computes the sums of products that the operation states, and no transformed ones.
        features: LLVM features that nothing but its kernels uses: a program without one of them runs without these.
    """

    name: str
    version: int = 1
    anchors: frozenset[str]
    exact: bool = True
    features: tuple[str, ...] = ()

    @abc.abstractmethod
    def match(self, group: Group, machine: Machine) -> Match | Miss:
        """Take the group, or say why not."""

    @abc.abstractmethod
    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Knob -> choices. Small: the default is found by looking at the cost of every point."""

    @abc.abstractmethod
    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        """Estimated seconds on all threads of the machine; infinite for an illegal point."""

    @abc.abstractmethod
    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        """Layouts the kernel reads and writes; `offered` are those the inputs have already."""

    @abc.abstractmethod
    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        """The kernel before scheduling: parameters in order, then the result, in physical shapes."""

    @abc.abstractmethod
    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        """Schedule the function :meth:`compute` made."""

    def is_exact(self, match: Match) -> bool:
        """Whether of this group it computes the sums stated, without products with zeros of its own making.

        Zero times a number changes no sum, but zero times NaN or infinity does.
        """
        return self.exact

    def instruction(self, match: Match) -> str:
        """Mnemonic of the instruction that adds its products, where it is no multiply-add of floats; "" where it is.

        What multiplies is the fact "dot" or "product" of a match.
        """
        multiplies = match.facts.get("dot") or match.facts.get("product")
        return str(getattr(multiplies, "instruction", ""))

    def sharing(self, match: Match, config: Config, machine: Machine) -> Sharing:
        """How threads share the work of a configuration; here, as evenly as if it always divided."""
        threads = int(config.get("threads", 1))
        return Sharing(threads, threads, 1)

    def shared(self, match: Match, machine: Machine, config: Config | None = None) -> Callable[[int], Sharing]:
        """:meth:`sharing` as a function of the number of threads."""
        return lambda threads: self.sharing(match, {**(config or {}), "threads": threads}, machine)

    def default(self, match: Match, machine: Machine) -> Config:
        """The configuration of least estimated cost; no search on hardware."""
        return min(self.points(match, machine), key=lambda config: self.cost(match, config, machine))

    def points(self, match: Match, machine: Machine) -> Iterator[Config]:
        """Every point of the space."""
        space = self.space(match, machine)
        for values in itertools.product(*space.values()):
            yield dict(zip(space, values, strict=True))


def config_text(config: Config) -> str:
    """A configuration as one stable line of JSON."""
    return json.dumps(config, sort_keys=True)
