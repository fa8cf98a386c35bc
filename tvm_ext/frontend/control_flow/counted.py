"""Tensors of which values decide how much there is: a program plans them at the most that it can be, and counts."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Counted:
    """A tensor whose size along an axis depends on values.

    Attributes:
        tensor: Relax variable or constant of the largest size; what lies behind `count` along `axis` means nothing.
        axis: of the tensor.
        count: Relax variable or constant, one int64.
        size: name of the dimension; tensors of one count have the same.
        maker: the node that counts, for messages.
    """

    tensor: Any
    axis: int
    count: Any
    size: str
    maker: str
    #: It is no expression: whoever asks for shape or dtype learns that it has none.
    ty = None


def at_most(value: Any) -> Any:
    """The tensor of the largest size of what values decide the size of; anything else as it is."""
    return value.tensor if isinstance(value, Counted) else value
