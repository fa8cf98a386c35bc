"""Values of knobs as a template uses them: a split, an order, annotations, or any other option.

The names and attributes are AutoTVM's; `apply` works on a `tvm.s_tir.Schedule` and its loops:

    yo, yi = cfg["tile_y"].apply(sch, y)            # cfg["tile_y"].size == [16, 32]
    cfg["order"].apply(sch, [yo, k, yi])            # cfg["order"].perm == [0, 2, 1]
    cfg["ann"].apply(sch, [k, yi])                  # cfg["ann"].anns == ["unroll", "vec"]
    if cfg["layout"].val == "packed": ...
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from ...core.errors import TvmExtError

#: What can be done to a loop -> the method of the schedule that does it.
ANNOTATIONS: Mapping[str, str] = {"none": "", "vec": "vectorize", "unroll": "unroll", "parallel": "parallel"}


class InstantiationError(TvmExtError, ValueError):
    """A template refuses a configuration: too much to unroll, a wrong vector length. Measured as a "schedule" error."""


@dataclass(frozen=True)
class SplitEntity:
    """A split of one loop.

    Attributes:
        size: extents of the loops it becomes, outermost first. The outermost is rounded up if they do not divide.
    """

    size: list[int]

    def apply(self, sch: Schedule, loop: LoopRV) -> list[LoopRV]:
        """Split the loop; the new loops, outermost first."""
        return list(sch.split(loop, factors=[None, *self.size[1:]]))


@dataclass(frozen=True)
class ReorderEntity:
    """An order of loops.

    Attributes:
        perm: places in the list of loops it is applied to, the new outermost first.
    """

    perm: list[int]

    def apply(self, sch: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
        """Reorder the loops; they are returned in their new order.

        Raises:
            InstantiationError: another number of loops than the order is of.
        """
        if len(loops) != len(self.perm):
            raise InstantiationError(f"an order of {len(self.perm)} loops is applied to {len(loops)}")
        ordered = [loops[place] for place in self.perm]
        sch.reorder(*ordered)
        return ordered


@dataclass(frozen=True)
class AnnotateEntity:
    """What is done to each of some loops.

    Attributes:
        anns: one of `ANNOTATIONS` a loop.
    """

    anns: list[str]

    def apply(
        self, sch: Schedule, loops: Sequence[LoopRV], max_unroll: int | None = None, vec_size: Sequence[int] = ()
    ) -> list[LoopRV]:
        """Annotate the loops, which are returned.

        Args:
            max_unroll: the largest extent that may be unrolled.
            vec_size: extents that may be vectorized; empty for any.

        Raises:
            InstantiationError: another number of loops than there are annotations, or an extent that is not allowed.
        """
        if len(loops) != len(self.anns):
            raise InstantiationError(f"annotations of {len(self.anns)} loops are applied to {len(loops)}")
        for loop, ann in zip(loops, self.anns, strict=True):
            extent = int(sch.get(loop).extent)
            if ann == "unroll" and max_unroll is not None and extent > max_unroll:
                raise InstantiationError(f"a loop of {extent} is not unrolled: at most {max_unroll} iterations are")
            if ann == "vec" and vec_size and extent not in vec_size:
                raise InstantiationError(f"a loop of {extent} is not vectorized: {list(vec_size)} are")
            if method := ANNOTATIONS[ann]:
                getattr(sch, method)(loop)
        return list(loops)


@dataclass(frozen=True)
class OtherOptionEntity:
    """Any other choice.

    Attributes:
        val: the value.
    """

    val: Any


Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity
"""The value of a knob."""

#: AutoTVM's kind of a knob, as in its logs -> its class; any other kind is read as "ot".
ENTITIES: Mapping[str, type[Any]] = {
    "sp": SplitEntity, "re": ReorderEntity, "an": AnnotateEntity, "ot": OtherOptionEntity,
}  # fmt: skip
