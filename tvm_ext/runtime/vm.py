"""One caller's share of a loaded program: a Relax VM of its own, aligned argument buffers, and a bounded pool of them.

A Relax VM keeps the registers of its call in itself, so two threads must never be in one. VMs over one executable
share its code and weights; another costs well under a millisecond.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import ALIGNMENT, aligned_empty, to_array, to_tensor, zero_copy
from .spec import TensorSpec
from .tvm_runtime import virtual_machine


class Weights:
    """The weights as TVM tensors, made once, and where their memory lies."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.tensors = tuple(to_tensor(array) for array in arrays)
        spans = sorted((t.data_ptr(), t.data_ptr() + a.nbytes) for t, a in zip(self.tensors, arrays, strict=True))
        self._starts, self._ends = [s[0] for s in spans], [s[1] for s in spans]

    def contain(self, address: int) -> bool:
        """Whether an address lies within a weight."""
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]


class Caller:
    """A VM and the buffers of the calls made through it. One call at a time.

    Args:
        module: TVM module of the executable.
        inputs: what `main` takes before the weights.
        weights: the rest of what it takes.
    """

    def __init__(self, module: Any, inputs: Sequence[TensorSpec], weights: Weights) -> None:
        import tvm_ffi

        self._main = virtual_machine(module)["main"]
        self._inputs, self._weights = inputs, weights
        self._from_dlpack = tvm_ffi.from_dlpack
        self._zero_copy = [zero_copy(spec.numpy_dtype, spec.shape) for spec in inputs]
        self._buffers: list[tuple[np.ndarray, Any] | None] = [None] * len(inputs)
        self._first: list[Any] | None = None
        self._constants: frozenset[int] | None = None

    def call(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run `main`. Arrays fit the inputs; what comes back shares memory with nothing else."""
        arguments = [self._argument(index, array) for index, array in enumerate(arrays)]
        result = self._main(*arguments, *self._weights.tensors)
        results = [result] if hasattr(result, "data_ptr") else list(result)
        if self._constants is None:
            return self._first_outputs(results)
        taken = {argument.data_ptr() for argument in arguments}
        outputs = []
        for tensor in results:
            address = tensor.data_ptr()
            shared = address in taken or address in self._constants or self._weights.contain(address)
            outputs.append(to_array(tensor, copy=shared))
            taken.add(address)
        return outputs

    def _argument(self, index: int, array: np.ndarray) -> Any:
        """The array itself if kernels can read it where it is, else a copy in an aligned buffer of this caller."""
        if not self._zero_copy[index]:
            return to_tensor(array)
        if array.flags.carray:  # contiguous, aligned to its items, writable
            tensor = self._from_dlpack(array)
            if tensor.data_ptr() % ALIGNMENT == 0:
                return tensor
        held = self._buffers[index]
        if held is None:
            buffer = aligned_empty(self._inputs[index].shape, self._inputs[index].numpy_dtype)
            held = self._buffers[index] = (buffer, self._from_dlpack(buffer))
        np.copyto(held[0], array)
        return held[1]

    def _first_outputs(self, results: list[Any]) -> list[np.ndarray]:
        """Copies, for the first two calls: a result at one address in both, while the first is held, is a constant.

        The program owns such a result, and gives the same one in every call.
        """
        if self._first is None:
            self._first = results
        else:
            before = {tensor.data_ptr() for tensor in self._first}
            self._constants = frozenset(tensor.data_ptr() for tensor in results) & before
            self._first = None
        return [to_array(tensor, copy=True) for tensor in results]


_pools: weakref.WeakSet[CallerPool] = weakref.WeakSet()


class CallerPool:
    """A bounded number of callers, last used first.

    Args:
        make: makes a caller.
        limit: callers at most; further calls wait.
    """

    def __init__(self, make: Callable[[], Caller], limit: int) -> None:
        self._make, self._limit = make, limit
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Forget all callers and locks: after a fork, threads that held them are gone."""
        self._idle: list[Caller] = []
        self._made = 0
        self._waiting = 0
        self._returned = threading.Condition(threading.Lock())

    def call(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """:meth:`Caller.call` through a free caller."""
        try:
            caller = self._idle.pop()
        except IndexError:
            caller = self._wait_or_make()
        try:
            outputs = caller.call(arrays)
        except BaseException:
            self._give_up()
            raise
        self._idle.append(caller)
        if self._waiting:  # read after the append: who waits counts itself first, then looks once more
            with self._returned:
                self._returned.notify()
        return outputs

    def _wait_or_make(self) -> Caller:
        with self._returned:
            self._waiting += 1
            try:
                while True:
                    if self._idle:
                        return self._idle.pop()
                    if self._made < self._limit:
                        self._made += 1
                        break
                    self._returned.wait()
            finally:
                self._waiting -= 1
        try:
            return self._make()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """A call failed: its VM may hold half of it, so another is made when one is needed."""
        with self._returned:
            self._made -= 1
            self._returned.notify()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
