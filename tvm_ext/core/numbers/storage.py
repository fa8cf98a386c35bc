"""Stored and computed types: tensors kept in 8 or 16 bits, and the operations that turn them into numbers.

    astype(x, float32)               of a bfloat16 or float16 x            "widen"
    dequantize(x, scale, zero)       of an int8 or uint8 x                 "dequantize"
    astype(x, int32) [- zero]        of an int8 or uint8 x                 "shift"

These are decodes. Each group that reads a stored tensor decodes it itself, so that no kernel stands for a conversion
and a tensor lies in memory as it is stored. What ends an epilogue the other way (`quantize`, `astype` to a narrow
float) is an encode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from ..graph.relax_graph import dtype_of, op_name, scalar_of
from .precision import NARROW_FLOATS

#: Types that tensors are stored in, but that nothing is computed in.
STORED = frozenset({"int8", "uint8"}) | NARROW_FLOATS
_COMPUTED = frozenset({"float32", "int32"})


def chain_of(value: Any, chains: Mapping[Any, Sequence[Any]]) -> tuple[Any, ...] | None:
    """The decodes, in order, that an operation ends; None if it is no decode.

    Args:
        value: the operation.
        chains: variable -> its decodes, of variables bound before.
    """
    name = op_name(value)
    if name not in ("relax.astype", "relax.dequantize", "relax.subtract") or dtype_of(value) not in _COMPUTED:
        return None
    first = value.args[0]
    if name != "relax.subtract":
        return (value,) if dtype_of(first) in STORED and isinstance(first, relax.Var | GenericConst) else None
    before = chains.get(first) if isinstance(first, relax.Var) else None
    shifts = before is not None and len(before) == 1 and dtype_of(value) == "int32"
    return (*before, value) if before is not None and shifts and scalar_of(value.args[1]) is not None else None


#: What a constant may be larger than what it is made of: a weight of 8 bits as float32. Up to so many bytes it may be
#: of any size.
_MAX_GROWTH, _SMALL = 4, 1 << 20


def outgrows(nbytes: int, operands: int) -> bool:
    """Whether a constant would be large, and much larger than the bytes of what it is made of: a program computes it,
    so that an artifact stays about as large as its model."""
    return nbytes > _SMALL and nbytes > _MAX_GROWTH * operands


class Growth:
    """Which constants outgrow what they are made of, which slices take all, and what an image is resized by, decided
    alike in programs of several sizes of one model.

    The first program decides by its own sizes; each other one, with :meth:`again`, as the first did of the same value.

    Attributes:
        alone: whether each answer so far is the one that this program has by its own sizes.
        outdone: whether an answer of this program is larger than one that programs before it were told.
    """

    def __init__(self) -> None:
        self._decided: dict[tuple[str, int], bool] = {}
        self._largest: dict[tuple[str, int], int] = {}
        self._asked: Counter[str] = Counter()
        self.alone, self.outdone = True, False

    def again(self) -> Growth:
        """For another program."""
        other = Growth()
        other._decided, other._largest = self._decided, self._largest
        return other

    def decided(self, value: str, outgrown: bool) -> bool:
        """Whether a value stays computed.

        Args:
            value: its name; of one that is asked about several times, the first program's answers hold in turn.
            outgrown: whether it outgrows its operands in this program.
        """
        self._asked[value] += 1
        return self._as_first((value, self._asked[value]), outgrown)

    def most(self, question: str, own: int) -> int:
        """The largest answer of all programs so far; where it is this one's, those before it have to be made anew.

        Args:
            question: that is asked; one that is asked several times has answers in turn.
            own: the answer in this program.
        """
        self._asked[question] += 1
        place = (question, self._asked[question])
        before = self._largest.setdefault(place, own)
        self._largest[place] = max(before, own)
        self.alone, self.outdone = False, self.outdone or own > before
        return self._largest[place]

    def whole(self, value: str, taken: bool) -> bool:
        """Whether a slice takes all in the first program.

        Args:
            value: its name.
            taken: whether it does in this one.
        """
        return self._as_first((value, -1), taken)

    def _as_first(self, question: tuple[str, int], own: bool) -> bool:
        first = self._decided.setdefault(question, own)
        self.alone = self.alone and first == own
        return first
