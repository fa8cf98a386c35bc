"""Calls of a session whose states stay where they are: what is known of the arguments of one holds for the next.

A model of thirty layers has sixty caches: to look at each of them again, in each call, took as long as thirty kernels.
"""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from .arrays import Arrays, Places
from .output_memory import OutputMemory

ReadyCall = Callable[[Arrays], list[np.ndarray]]
"""An array an input -> one an output."""


class Resident(list["np.ndarray | None"]):
    """Memory for each output of a session, the same in each of its calls; None where a call has its own.

    Args:
        places: that memory; of each state also that of the input which it updates.
        fed: numbers of the inputs that are no states.

    Attributes:
        key: what is fed in the call that is made: its types and shapes.
        ready: caller -> key -> how it makes such a call; None if nothing is known beforehand.
    """

    def __init__(self, places: Places, fed: Sequence[int]) -> None:
        super().__init__(places)
        self.fed, self.key = fed, tuple[Any, ...]()
        self.ready: weakref.WeakKeyDictionary[Any, dict[Hashable, ReadyCall | None]] = weakref.WeakKeyDictionary()


class Arguments:
    """The arguments of a function, all but those that are fed and those outputs that each call has anew.

    Args:
        function: of the VM.
        tensors: its arguments.
        fed: numbers of the inputs, which are also those of their arguments, and how the tensor of each is made.
        anew: number of each output that is no state, of its argument, and its memory.
        places: memory of the others.
    """

    def __init__(
        self, function: Any, tensors: list[Any], fed: Sequence[tuple[int, Callable[[np.ndarray], Any]]],
        anew: Sequence[tuple[int, int, OutputMemory]], places: Places,
    ) -> None:  # fmt: skip
        self._function, self._tensors, self._fed, self._anew = function, tensors, fed, anew
        self._places = list(places)

    def __call__(self, arrays: Arrays) -> list[np.ndarray]:
        """Run once; an array an output, of which those that are no states share memory with nothing else."""
        tensors, outputs = self._tensors, self._places.copy()
        for index, tensor_of in self._fed:
            tensors[index] = tensor_of(arrays[index])
        for output, argument, memory in self._anew:
            outputs[output], tensors[argument] = memory.take()
        try:
            self._function(*tensors)
        finally:
            for index, _ in self._fed:  # the caller's arrays are held no longer than the call
                tensors[index] = None
        return outputs  # type: ignore[return-value]
