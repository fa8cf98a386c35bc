"""Which axes an operator mixes: the rule of each operator for the proof that a model works on each row by itself.

A rule looks at one call whose operands are cut into rows and says why it is not row-wise, or None. It may rely on
what `row_wise` has checked before: attributes and constants do not depend on the number of rows, and every tensor has
at most one axis that does, with the same number of indices for each row, in order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .attributes import attrs_of


@dataclass(frozen=True)
class Rows:
    """Row r of a tensor: indices [r * each, (r + 1) * each) of one axis of a tensor of this shape."""

    axis: int
    each: int
    shape: tuple[int, ...]

    @property
    def from_right(self) -> int:
        """The axis, counted from the last one, as broadcasting does."""
        return len(self.shape) - self.axis

    @property
    def outer(self) -> int:
        """Elements of the axes before: how often the rows follow each other in memory."""
        return math.prod(self.shape[: self.axis])


Cut = Rows | None
"""How a tensor is cut into rows; None if it is the same for all of them."""


@dataclass(frozen=True)
class Site:
    """One call: its operands (those of a tuple one by one) and its first result, as they are cut."""

    call: Any
    operands: tuple[Cut, ...]
    result: Cut

    @property
    def first(self) -> Rows:
        """The first operand that is cut."""
        return next(cut for cut in self.operands if cut is not None)

    def attribute(self, name: str) -> Any:
        """An attribute as Python values."""
        return attrs_of(self.call, [name])[name]


Rule = Callable[[Site], "str | None"]


def aligned(site: Site) -> str | None:
    """Elementwise, operands broadcast: rows lie on the same axis, counted from the right."""
    if any(cut and site.result and cut.from_right != site.result.from_right for cut in site.operands):
        return "its operands have their rows on different axes"
    return None


def parameters_shared(site: Site) -> str | None:
    """Rows in the first operand; parameters are the same for all."""
    return "its parameters depend on the rows" if any(site.operands[1:]) else None


def by_parameters(site: Site) -> str | None:
    """A matrix of rows by one that is the same for all."""
    return "it sums over the axis on which the rows lie" if site.first.from_right == 1 else parameters_shared(site)


def in_inference(site: Site) -> str | None:
    return "it takes the statistics of the batch" if site.attribute("training") else None


def not_over(attribute: str) -> Rule:
    """It mixes the axes of an attribute (all of them if that is None), and no others."""

    def rule(site: Site) -> str | None:
        stated = site.attribute(attribute)
        rows, rank = site.first, len(site.first.shape)
        axes = range(rank) if stated is None else [a % rank for a in ([stated] if isinstance(stated, int) else stated)]
        if rows.axis in axes:
            return f"it works over axis {rows.axis}, on which the rows lie"
        same = {(cut.from_right, len(cut.shape)) for cut in site.operands if cut is not None}
        return None if len(same) == 1 else "its operands have their rows on different axes"

    return rule


def all_of(*rules: Rule) -> Rule:
    return lambda site: next((why for rule in rules if (why := rule(site))), None)


def images(layout: str, *axes: str) -> Rule:
    """It mixes all but some axes of a layout: the batch for convolutions, also channels for pooling."""

    def rule(site: Site) -> str | None:
        name, rows = str(site.attribute(layout)), site.operands[0]
        if any(site.operands[1:]) or rows is None:
            return "its weight depends on the rows"
        return None if name[rows.axis] in axes else f"it works over axis {rows.axis}, on which the rows lie"

    return rule


def product(site: Site) -> str | None:
    left, right = site.operands
    if (left and left.from_right == 1) or (right and right.from_right == (2 if len(right.shape) > 1 else 1)):
        return "it sums over the axis on which the rows lie"
    if left and right and (left.from_right != right.from_right or left.from_right < 3):
        return "both its operands depend on the rows, but not as a batch of matrices"
    return None


def taken(site: Site) -> str | None:
    data, indices = site.operands
    if data is None:
        return None
    axis = site.attribute("axis")
    if indices is not None:
        return "it looks up rows by rows"
    return "it picks rows" if axis is None or axis % len(data.shape) == data.axis else None


def reshaped(site: Site) -> str | None:
    """Rows stay whole: as many elements stand before the rows' axis as did."""
    if site.result and site.first.outer == site.result.outer:
        return None
    return f"it mixes the rows: {_text(site.first)} becomes {_text(site.result)}"


def sliced(site: Site) -> str | None:
    rows = site.first
    axes, strides = (_numbers(site.call.args[i]) for i in (1, 4)) if len(site.call.args) > 4 else ((), ())
    sliced = dict(zip(axes, strides or (1,) * len(axes), strict=False))
    step = sliced.get(rows.axis, sliced.get(rows.axis - len(rows.shape), 1))
    whole = site.result is not None and site.result.each == rows.each
    return None if step == 1 and whole else "it picks rows"


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(getattr(v, "value", v)) for v in getattr(value, "fields", value))


def padded(site: Site) -> str | None:
    rows = site.first
    width = _numbers(site.attribute("pad_width"))
    return "it pads the axis of the rows" if any(width[2 * rows.axis : 2 * rows.axis + 2]) else None


def tiled(site: Site) -> str | None:
    kept = site.result is not None and site.result.each == site.first.each
    return aligned(site) if kept else "it repeats the rows"


def same_place(site: Site) -> str | None:
    """All operands are cut, and equally."""
    places = {(cut.axis, cut.each) if cut else None for cut in site.operands}
    return None if len(places) == 1 else "some of its operands depend on the rows, and some do not, or differently"


def heads(site: Site) -> str | None:
    return None if all(cut is None or cut.axis == 0 for cut in site.operands) else "its rows are no batch"


def sequences(site: Site) -> str | None:
    """Rows are those of the batch: of (steps, batch, ..), of states (directions, batch, ..), of lengths (batch)."""
    if site.attribute("quantized"):
        return "it quantizes the states of all rows by one range"
    cuts = [cut for cut in site.operands if cut is not None]
    whole = all(cut.axis == min(len(cut.shape) - 1, 1) and cut.each == 1 for cut in cuts)
    return None if whole and site.operands[1] is None else "its rows are not those of the batch"


def free(_: Site) -> str | None:
    return None


def _text(cut: Cut) -> str:
    return "a result without rows" if cut is None else f"{list(cut.shape)} with rows on axis {cut.axis}"
