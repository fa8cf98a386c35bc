"""Arguments of kernels: random values, packed into the layouts that a candidate reads, weights cold as in a model."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.layout import Layout
from ...runtime.memory.arrays import ALIGNMENT, aligned_empty, mapped_empty
from .dtypes import is_float, poison_of
from .programs import Argument

#: Integers are drawn below this, or below the smallest dimension of the other arguments: they may be indices.
_INTEGERS = 64
#: Integers that are stored numbers, never indices: all of their values are drawn.
_STORED = ("int8", "uint8")
#: Bytes of packed arguments that a worker keeps.
_KEPT = 256 << 20


def random_inputs(arguments: Sequence[Argument], seed: int = 0) -> list[np.ndarray]:
    """A value for each argument that is not written, the same in every process.

    Normal floats, and positive ones for scales; any bytes; small integers.
    """
    rng = np.random.default_rng(seed)
    inputs = [a for a in arguments if not a.written]
    sizes = [d for a in inputs if is_float(a.dtype) for d in a.shape if d > 1]
    return [_random(rng, a, min([_INTEGERS, *sizes])) for a in inputs]


def _random(rng: np.random.Generator, argument: Argument, below: int) -> np.ndarray:
    dtype, shape = np.dtype(argument.dtype), argument.shape
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if dtype.name in _STORED:
        return np.asarray(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True))
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, below, shape).astype(dtype))
    if argument.scale:
        return np.asarray((argument.scale * rng.uniform(0.5, 1.5, shape)).astype(dtype))
    return np.asarray(rng.standard_normal(shape, np.float32).astype(dtype))


def poison(array: np.ndarray) -> None:
    """Fill with a value that no kernel computes, where the dtype has one."""
    array.fill(poison_of(array.dtype))


class Packed:
    """Packed arrays, the latest used ones kept: packing Winograd's weights takes longer than running the kernel."""

    def __init__(self, limit: int = _KEPT) -> None:
        self._limit, self._bytes = limit, 0
        self._kept: OrderedDict[Any, np.ndarray] = OrderedDict()

    def get(self, key: Any, array: np.ndarray, layout: Layout) -> np.ndarray:
        """`array`, known as `key`, in `layout`. Lanes without a value are poisoned, which must reach no result."""
        if (key, layout) in self._kept:
            self._kept.move_to_end((key, layout))
            return self._kept[key, layout]
        packed = layout.pack(array)
        if layout.block and array.shape[layout.block[0]] % layout.block[1]:
            packed = np.where(layout.pack(np.ones(array.shape, bool)), packed, poison_of(array.dtype))
        kept = aligned_empty(packed.shape, packed.dtype)
        np.copyto(kept, packed)
        self._kept[key, layout] = kept
        self._bytes += kept.nbytes
        while self._bytes > self._limit and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return kept


class ColdCopies:
    """Copies of constant arguments that no cache holds when a kernel reads them.

    A model's kernel finds its weights where the whole model's weights have gone through the caches since they were last
    read. So each call gets the next copy, and between copying and reading all of this memory is touched.

    Args:
        nbytes: memory that is touched before arguments are read again, a multiple of L3; 0 leaves them where they are,
            warm.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._memory: np.ndarray | None = None

    def of(self, arrays: Sequence[np.ndarray], calls: int) -> list[list[np.ndarray]]:
        """Up to `calls` copies of some arrays; only the arrays themselves if one copy fills the memory."""
        size = sum(_rounded(a.nbytes) for a in arrays)
        count = min(calls, -(-self._nbytes // size)) if size else 0
        if count < 1 or size >= self._nbytes:
            return [list(arrays)]
        if self._memory is None:  # copies that fill it may exceed it by less than one of them
            self._memory = mapped_empty(2 * self._nbytes)
            self._memory[: self._nbytes].fill(0)
        copies: list[list[np.ndarray]] = []
        start = 0
        for _ in range(count):
            copies.append([])
            for array in arrays:
                copy = np.ndarray(array.shape, array.dtype, self._memory, start)
                np.copyto(copy, array)
                copies[-1].append(copy)
                start += _rounded(array.nbytes)
        # Reading drives the copies out: a large fill would go around the caches.
        self._memory[start : self._nbytes].max(initial=0)
        return copies


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
