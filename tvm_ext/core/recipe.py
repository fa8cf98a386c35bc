"""What a recipe is: it recognises a group, costs its configurations, and makes and schedules the kernel.

A recipe states what only it knows. One that says nothing of them has the work its operators state for a cost, one
configuration, plain layouts, and threads that share the work evenly. All types that a recipe speaks of are here.
"""

from __future__ import annotations

import abc
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tvm import relax, tirx
from tvm.s_tir import Schedule

from .cost.estimate import vector_seconds, vector_threads
from .cost.sharing import Sharing as Sharing
from .cost.work import VectorWork as VectorWork
from .group import Group as Group
from .group import Param as Param
from .layout import Layout as Layout
from .machine import Machine as Machine

Config = dict[str, Any]
"""Knob -> value; plain JSON values, so that it can be logged, cached and compared."""


@dataclass(frozen=True)
class Match:
    """A group that a recipe takes. Recipes that read more out of it derive a dataclass with those fields."""

    group: Group


M = TypeVar("M", bound=Match)


@dataclass(frozen=True)
class Miss:
    """A group that a recipe does not take, and why."""

    reason: str


@dataclass(frozen=True)
class Layouts:
    """The layout of each parameter, in order, and of the result."""

    params: tuple[Layout, ...]
    output: Layout

    @staticmethod
    def plain(group: Group, own: Mapping[relax.Var, Layout] | None = None) -> Layouts:
        """All as ONNX has it, but the parameters that `own` names by their variable."""
        params = ((own or {}).get(p.var) or Layout.plain(len(p.shape)) for p in group.params)
        return Layouts(tuple(params), Layout.plain(len(group.shape)))

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.params))} -> {self.output}"


class Recipe(abc.ABC, Generic[M]):
    """A schedule recipe. One recipe serves the compile without tuning, and tuners that search its space.

    `match`, `compute` and `schedule` make a recipe. Its type argument is the class of its matches.

    Attributes:
        name: unique, lower case with underscores; kernels, reports and records name it.
        version: a whole number, raised when a configuration means something else than before.
        anchors: operator names of the groups it may take.
        exact: whether it computes the sums of products that the operation states, and no transformed ones.
        features: LLVM features that nothing but its kernels uses: a program without one of them runs without these.
        any_size: whether its kernels are right where the run-time extent of an axis that the anchor mixes
            (:mod:`.mixing`) is less than the buffer has: they read nothing beyond it, or only what :meth:`border` says
            is written there. Axes that are not mixed may have run-time extents in kernels of all recipes.
    """

    name: str
    version: int = 1
    anchors: frozenset[str]
    exact: bool = True
    features: tuple[str, ...] = ()
    any_size: bool = False

    @abc.abstractmethod
    def match(self, group: Group, machine: Machine) -> M | Miss:
        """Take the group, or say why not."""

    def work(self, match: M, machine: Machine) -> VectorWork:
        """What the kernel has to do, where vectors do all of it; here, what the operators of the group state.

        The defaults of :meth:`space`, :meth:`cost` and :meth:`sharing` follow from it.
        """
        return VectorWork.of(match.group)

    def space(self, match: M, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Knob -> choices. Small: the default is the point of least cost, of all.

        Here, one point: the number of threads that finish :meth:`work` first.
        """
        operations = self.work(match, machine).operations
        return {"threads": [vector_threads(operations, machine, self.shared(match, machine))]}

    def cost(self, match: M, config: Config, machine: Machine) -> float:
        """Estimated seconds on all threads of the machine; infinite for an illegal point.

        Here, those of :meth:`work` in whole vectors, shared as :meth:`sharing` says.
        """
        return vector_seconds(self.work(match, machine).operations, machine, self.sharing(match, config, machine))

    def cost_cut(self, match: M, config: Config, machine: Machine) -> float:
        """Estimated seconds of a kernel that was scheduled for other sizes and whose loops are cut to those of a match;
        infinite where that is not known. Here, those of :meth:`cost`."""
        return self.cost(match, config, machine)

    def layouts(self, match: M, config: Config, offered: Sequence[Layout]) -> Layouts:
        """Layouts the kernel reads and writes; `offered` are those the inputs have already. Here, all are plain."""
        return Layouts.plain(match.group)

    @abc.abstractmethod
    def compute(self, match: M, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        """The kernel before scheduling: parameters in order, then the result, in physical shapes."""

    @abc.abstractmethod
    def schedule(self, sch: Schedule, match: M, config: Config, machine: Machine) -> None:
        """Schedule the function :meth:`compute` made."""

    def is_exact(self, match: M) -> bool:
        """Whether of this group it computes the sums stated, without products with zeros of its own making.

        Zero times a number changes no sum, but zero times NaN or infinity does.
        """
        return self.exact

    def border(self, match: M) -> Mapping[int, float]:
        """Index of a parameter -> the number, as it is stored, that must stand behind its run-time extents wherever the
        kernel reads it there: what its operation reads beyond the edge of an image. Here, nothing."""
        return {}

    def instruction(self, match: M) -> str:
        """Mnemonic of the instruction that adds its products, where it is no multiply-add of floats; "" where it is."""
        return ""

    def sharing(self, match: M, config: Config, machine: Machine) -> Sharing:
        """How threads share the work of a configuration; here, as :meth:`work` says."""
        return self.work(match, machine).shared(int(config.get("threads", 1)))

    def shared(self, match: M, machine: Machine, config: Config | None = None) -> Callable[[int], Sharing]:
        """:meth:`sharing` as a function of the number of threads."""
        return lambda threads: self.sharing(match, {**(config or {}), "threads": threads}, machine)

    def cuts(self, match: M, config: Config) -> bool:
        """Whether the loops of a kernel of run-time extents end there; others compute up to the bounds what nothing
        reads."""
        return True

    def points_of_any_size(self, match: M, machine: Machine) -> Iterator[Config]:
        """The points of the space that :meth:`cuts`, for a group of run-time extents."""
        return (point for point in self.points(match, machine) if self.cuts(match, point))

    def costs_of_any_size(self, match: M, machine: Machine) -> Iterable[tuple[Config, float]]:
        """:meth:`points_of_any_size`, in order, each with its :meth:`cost`; illegal ones may be left out."""
        return ((point, self.cost(match, point, machine)) for point in self.points_of_any_size(match, machine))

    def default_of_any_size(self, match: M, machine: Machine) -> Config:
        """:meth:`default`, for a group of run-time extents: one that :meth:`cuts`, if there is any."""
        config = self.default(match, machine)
        if self.cuts(match, config):
            return config
        return min(self.costs_of_any_size(match, machine), key=lambda pair: pair[1], default=(config, 0.0))[0]

    def default(self, match: M, machine: Machine) -> Config:
        """The configuration of least estimated cost; no search on hardware."""
        return min(self.points(match, machine), key=lambda config: self.cost(match, config, machine))

    def points(self, match: M, machine: Machine) -> Iterator[Config]:
        """Every point of the space."""
        space = self.space(match, machine)
        for values in itertools.product(*space.values()):
            yield dict(zip(space, values, strict=True))


def config_text(config: Config) -> str:
    """A configuration as one stable line of JSON."""
    return json.dumps(config, sort_keys=True)
