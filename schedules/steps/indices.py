"""Flat indices and indices in a shape, in C order; of ints and of TIR expressions."""

from collections.abc import Sequence
from typing import Any

from tvm import tirx


def unflatten(index: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """The index in `shape` (C order) of a flat index."""
    out = []
    for dim in reversed(shape[1:]):
        out.append(tirx.floormod(index, dim))
        index = tirx.floordiv(index, dim)
    return (index, *reversed(out))


def flatten(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """The flat index (C order) of an index in `shape`."""
    flat: Any = 0
    for i, dim in zip(index, shape, strict=True):
        flat = flat * dim + i
    return flat
