"""The memory of a kernel's arguments, looked at while the kernel is called."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..spec import TensorSpec
from .arrays import memory_at

Inspector = Callable[[str, bool, Sequence[np.ndarray]], None]
"""Called with a kernel's name, whether it is about to run or has run, and its arguments as arrays over their memory."""

#: Builtins of the VM (memory, shapes, tuples) take no part in the numbers.
BUILTIN = "vm.builtin."


def hook_of(inspect: Inspector) -> Callable[[str, bool, Sequence[Any]], None]:
    """What a VM calls, for an inspector of kernels."""

    def look(name: str, before: bool, arguments: Sequence[Any]) -> None:
        if not name.startswith(BUILTIN):
            inspect(name, before, [array_over(argument) for argument in arguments if hasattr(argument, "data_ptr")])

    return look


def array_over(tensor: Any) -> np.ndarray:
    """A writable array over a tensor's memory."""
    return memory_at(tensor.data_ptr(), tensor.shape, TensorSpec("", (), str(tensor.dtype)).numpy_dtype)
