"""What MetaSchedule tunes: an unscheduled kernel, and the designs of the recipe that made it, if it has some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from ...core.layout import Layout
from ...core.machine import Machine
from ...core.recipe import Config, Match, Recipe
from .designs import Design, default_of, designs_of


@dataclass(frozen=True)
class Workload:
    """A kernel to tune.

    Attributes:
        function: unscheduled.
        designs: the spaces of its recipe; empty: MetaSchedule's own rules.
        weight: how much a second of it counts: the number of its calls.
        default: schedules it as a compile without tuning does; measured first, so that nothing slower is taken for it.
    """

    function: tirx.PrimFunc
    designs: tuple[Design, ...] = ()
    weight: float = 1.0
    default: Design | None = None

    @classmethod
    def of(
        cls, recipe: Recipe, match: Match, machine: Machine, config: Config | None = None,
        offered: Sequence[Layout] | None = None,
    ) -> Workload:  # fmt: skip
        """The kernel of a recipe, in its default configuration and on plain inputs if not told otherwise."""
        config = config or recipe.default(match, machine)
        offered = offered or [Layout.plain(len(p.shape)) for p in match.group.params]
        function = recipe.compute(match, config, recipe.layouts(match, config, offered))
        default = default_of(recipe, match, config, machine)
        return cls(function, tuple(designs_of(recipe, match, config, machine)), default=default)
