"""Constants that are stored in few bits, for kernels that compute in float32.

    sum x (w - zero) scale[o]   ->   scale[o] sum x v        v = float32(w - zero), packed at compile time

The scale of an output is the same for all products of its sum, so it is multiplied once; v is a whole number, or a
bfloat16, and exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx

from tvm_ext.core.recipe import Group, Layout, Param
from tvm_ext.ops.scalars.strict_floats import times

from .arguments import Arguments
from .storage import Decoding

if TYPE_CHECKING:
    from tvm_ext.runtime.expansion import Expansion


@dataclass(frozen=True)
class Widened(Layout):
    """A constant of another type, which lies in memory as float32 numbers in the layout `packed`.

    Attributes:
        packed: where its elements lie.
        zero: what is taken off each element.
    """

    packed: Layout = field(default_factory=lambda: Layout.plain(4))
    zero: int = 0

    def __str__(self) -> str:
        return f"{self.packed} float32"

    def element_type(self, dtype: str) -> str:
        return "float32"

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.packed.physical_shape(shape)

    def index(self, logical: Sequence[Any]) -> tuple[Any, ...]:
        return self.packed.index(logical)

    def pack(self, array: np.ndarray) -> np.ndarray:
        return self.packed.pack(self._numbers(array))

    def compact(self, array: np.ndarray) -> tuple[np.ndarray, Expansion] | None:
        return self.packed.compact(self._numbers(array))

    def _numbers(self, array: np.ndarray) -> np.ndarray:
        return array.astype("float32") - np.float32(self.zero)


def why_not_widened(group: Group, weight: Param, axis: int) -> str:
    """Why a weight cannot be decoded when it is packed; "" if it can.

    Args:
        axis: of the weight, that of outputs.
    """
    decoding = Decoding.of(group, weight)
    if decoding.zero_point is None:
        return "the zero points of the weight differ, or are only known at run time"
    if _vector(decoding.scale) is not None and decoding.axis != axis:
        return f"the scales of the weight differ along axis {decoding.axis}, over which products are summed"
    return ""


def widened(group: Group, weight: Param, packed: Layout) -> Layout:
    """The layout of a weight whose numbers a kernel reads in the layout `packed`."""
    if not weight.decode:
        return packed
    return Widened(packed.order, packed.block, packed, Decoding.of(group, weight).zero_point or 0)


def scale_layouts(group: Group, weight: Param, lanes: int) -> Mapping[Any, Layout]:
    """Parameter -> layout, of the scales of a weight: whole vectors of `lanes`."""
    scale = _vector(Decoding.of(group, weight).scale)
    return {} if scale is None else {scale.var: Layout.blocked(1, lanes, 0)}


def scaled(args: Arguments, weight: Param) -> Callable[[Any, Any], Any]:
    """What multiplies a sum, given with its output channel, by the scale of the weight."""
    scale = Decoding.of(args.group, weight).scale
    if not isinstance(scale, Param):
        return lambda value, output: value if scale == 1 else times(value, tirx.const(scale, "float32"))
    tensor, layout, rank, is_one = args.tensor(scale), args.layout(scale), len(scale.shape), _vector(scale) is None
    return lambda value, output: times(value, tensor(*layout.index([0 if is_one else output] * rank)))


def _vector(scale: float | Param) -> Param | None:
    """Scales that differ; None of one scale."""
    return scale if isinstance(scale, Param) and scale.shape not in ((), (1,)) else None
