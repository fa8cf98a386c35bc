"""How a template defines its knobs: the `define_*` of AutoTVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionError
from .choices import Axis, Choices, Filter, knob_choices
from .policies import annotate_choices, reorder_choices, split_choices

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from .config_entity import ConfigEntity


class Definitions:
    """Knobs as they are defined, the first to be defined first.

    Args:
        schedule: lets axes be given as its loops; templates are called with such a space.

    Attributes:
        flop: what :meth:`add_flop` added up; 0 if it was not called.
    """

    def __init__(self, schedule: Schedule | None = None) -> None:
        self._schedule = schedule
        self._knobs: dict[str, Choices] = {}
        self._filters: list[Callable[[ConfigEntity], object]] = []
        self.flop = 0.0

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
        return self._add(knob_choices(name, candidate))

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
