"""Memory for one output, call after call: an array the caller has dropped is written again.

Fresh memory costs a page fault for each 4 KiB and a TVM tensor to be made over it. An array is free again when nothing
refers to it or to the buffer behind it (a numpy view refers to the buffer), which its reference counts tell.
"""

import sys
from typing import Any

import numpy as np

from .arrays import aligned_empty, as_bytes

#: Arrays kept: a caller may hold one result while the next is computed.
_KEPT = 2
#: Larger outputs are not kept, so that a dropped result gives its memory back.
_LARGEST = 16 << 20


class OutputMemory:
    """Hands out arrays of one shape and dtype. Not for several threads at once.

    Args:
        shape, dtype: of the arrays.
        physical: shape of the tensor that the program writes, over the same bytes.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], physical: tuple[int, ...]) -> None:
        self._shape, self._dtype, self._physical = shape, dtype, physical
        self._slots: list[_Slot] = []

    def take(self) -> tuple[np.ndarray, Any]:
        """An array that nobody else holds, and the TVM tensor over it."""
        for slot in self._slots:
            if slot.references() == slot.alone:
                return slot.array, slot.tensor
        slot = _Slot(self._shape, self._dtype, self._physical)
        if slot.array.nbytes <= _LARGEST:
            self._slots = [slot, *self._slots[: _KEPT - 1]]
        return slot.array, slot.tensor


class _Slot:
    """An array, the buffer behind it and its tensor; `alone` is the count of references while no one else has any."""

    __slots__ = ("_buffer", "alone", "array", "tensor")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], physical: tuple[int, ...]) -> None:
        import tvm_ffi

        self.array = aligned_empty(shape, dtype)
        self._buffer = self.array.base
        lent = as_bytes(self.array)
        self.tensor = tvm_ffi.from_dlpack(lent if shape == physical else lent.reshape(physical))
        del lent  # it is counted otherwise
        self.alone = self.references()

    def references(self) -> int:
        return sys.getrefcount(self.array) + sys.getrefcount(self._buffer)
