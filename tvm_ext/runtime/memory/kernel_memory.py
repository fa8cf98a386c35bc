"""The memory of a kernel's arguments, looked at while the kernel is called."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..spec import TensorSpec

Inspector = Callable[[str, bool, Sequence[np.ndarray]], None]
"""Called with a kernel's name, whether it is about to run or has run, and its arguments as arrays over their memory."""

#: Builtins of the VM (memory, shapes, tuples) take no part in the numbers.
BUILTIN = "vm.builtin."


def hook_of(inspect: Inspector) -> Callable[[str, bool, Sequence[Any]], None]:
    """What a VM calls, for an inspector of kernels."""

    def look(name: str, before: bool, arguments: Sequence[Any]) -> None:
        if not name.startswith(BUILTIN):
            inspect(name, before, [array_over(one) for one in arguments if hasattr(one, "data_ptr")])

    return look


def array_over(tensor: Any) -> np.ndarray:
    """A writable array over a tensor's memory, found by its address.

    An argument of a packed function is a view without an owner: `numpy.from_dlpack` of one ends the process.
    """
    shape = tuple(int(d) for d in tensor.shape)
    dtype = TensorSpec("", shape, str(tensor.dtype)).numpy_dtype
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory = (ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())
    return np.frombuffer(memoryview(memory), np.uint8).view(dtype).reshape(shape)
