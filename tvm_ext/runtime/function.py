"""One compiled function of a loaded model, called with numpy arrays: read and written where they lie if that can be."""

import functools
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from .memory.arrays import (
    ARGUMENT_ALIGNMENT,
    Arrays,
    Places,
    aligned_empty,
    as_bytes,
    is_aligned,
    lent_tensor,
    to_array,
    to_tensor,
    zero_copy,
)
from .memory.cache_lengths import register_refusal
from .memory.output_memory import OutputMemory
from .memory.resident import Arguments, ReadyCall
from .spec import Program, Specs


class Weights:
    """The weights as TVM tensors, made once, and where their memory lies."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.tensors = tuple(to_tensor(array) for array in arrays)
        spans = sorted((t.data_ptr(), t.data_ptr() + a.nbytes) for t, a in zip(self.tensors, arrays, strict=True))
        self._starts, self._ends = [s[0] for s in spans], [s[1] for s in spans]

    def bytes_of(self, index: int) -> tuple[int, np.ndarray]:
        """Where a weight lies, as kernels see it, and its values."""
        return self.tensors[index].data_ptr(), self._arrays[index]

    def contain(self, address: int) -> bool:
        """Whether an address lies within a weight."""
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]


class Function:
    """One compiled function in a caller's VM, and the buffers of the calls made of it.

    Args:
        function: the function of the VM.
        program: what the metadata says of it.
        inputs, outputs: what it takes before the weights, and makes, for its size of the batch.
        weights: of all programs.
        memory: bytes that start at a page, for the program's arena: no two functions run in one at a time.
    """

    def __init__(
        self, function: Any, program: Program, inputs: Specs, outputs: Specs, weights: Weights, memory: np.ndarray
    ) -> None:
        import tvm_ffi

        register_refusal()
        self._function, self._all_weights = function, weights
        self._weights = tuple(weights.tensors[i] for i in program.weights)
        self._inputs = [(spec.sizes, spec.numpy_dtype) for spec in inputs]
        self._outputs = [(spec.sizes, spec.numpy_dtype) for spec in outputs]
        self._written = dict(program.destinations)
        # what grows is at the beginning of a larger array, which who made that has seen to
        alike = ((output, taken) for output, taken in program.updates if self._outputs[output] == self._inputs[taken])
        self._updates = dict(alike)
        self._memory = {index: OutputMemory(*self._outputs[index], shape) for index, shape in program.destinations}
        self._returned = [index for index in range(len(outputs)) if index not in self._written]
        self._from_dlpack = tvm_ffi.from_dlpack
        self._zero_copy = [zero_copy(dtype, shape) for shape, dtype in self._inputs]
        self._buffers: list[tuple[np.ndarray, Any] | None] = [None] * len(inputs)
        self._arena = tuple(
            tvm_ffi.from_dlpack(memory[view.offset : view.end].view(view.dtype).reshape(view.shape))
            for view in program.arena
        )
        self._first: list[Any] | None = None
        self._constants: frozenset[int] | None = None

    def call(self, arrays: Arrays, into: Places | None = None) -> list[np.ndarray]:
        """Run once.

        Args:
            arrays: one an input, of the shapes and dtypes of the inputs.
            into: one an output: memory to write it to, if :attr:`takes` it. That of an output which updates an input
                may be that input's: nothing is copied then.

        Returns:
            The outputs: the memory of `into` where it was given, else arrays that share memory with nothing else.
        """
        outputs: list[np.ndarray] = [None] * len(self._outputs)  # type: ignore[list-item]
        written, lent = [], {}
        for index, shape in self._written.items():
            memory = into[index] if into is not None else None
            if memory is None:
                memory, tensor = self._memory[index].take()
            elif memory.shape != shape or (tensor := lent_tensor(memory)) is None:
                tensor = self._from_dlpack(as_bytes(memory if memory.shape == shape else memory.reshape(shape)))
            if (updated := self._updates.get(index)) is not None:
                if memory is arrays[updated] and memory.shape == shape:
                    lent[updated] = tensor
                elif memory.ctypes.data != arrays[updated].ctypes.data:
                    np.copyto(memory, arrays[updated])
            outputs[index] = memory
            written.append(tensor)
        arguments = [lent[i] if i in lent else self._argument(i, array) for i, array in enumerate(arrays)]
        result = self._function(*arguments, *self._weights, *written, *self._arena)
        if self._returned:  # the result is all that is returned, a tensor or a tuple
            results = [result] if hasattr(result, "data_ptr") else list(result)
            for index, array in zip(self._returned, self._arrays([*arguments, *written], results), strict=True):
                dtype = self._outputs[index][1]
                outputs[index] = array if array.dtype == dtype else array.view(dtype)  # a narrow one comes as bytes
        return outputs

    def ready(self, arrays: Arrays, into: Places, fed: Sequence[int]) -> ReadyCall | None:
        """:meth:`call` with the same arrays again, but for those that are fed, and the same memory.

        Returns:
            None if that is more than to pass them on: an output is returned or lies elsewhere, or an input is copied.
        """
        held = [index for index in range(len(arrays)) if index not in fed]
        updated = {self._updates.get(index) for index in self._written if into[index] is not None}
        if self._returned or updated != {*held} or not all(self._zero_copy[i] and is_aligned(arrays[i]) for i in held):
            return None
        tensors: list[Any] = [None if index in fed else to_tensor(array) for index, array in enumerate(arrays)]
        tensors += self._weights
        anew = []
        for index, shape in self._written.items():
            memory, taken = into[index], self._updates.get(index)
            if memory is None:
                anew.append((index, len(tensors), self._memory[index]))
            elif taken is None or memory is not arrays[taken]:
                return None
            tensors.append(None if memory is None else self._from_dlpack(as_bytes(memory.reshape(shape))))
        tensors += self._arena
        return Arguments(self._function, tensors, [(i, functools.partial(self._argument, i)) for i in fed], anew, into)

    def takes(self, output: int, memory: np.ndarray) -> bool:
        """Whether it can write an output there."""
        return output in self._written and is_aligned(memory) and memory.dtype == self._outputs[output][1]

    def _argument(self, index: int, array: np.ndarray) -> Any:
        """The array itself if kernels can read it where it is, else a copy in an aligned buffer of this function."""
        if not self._zero_copy[index]:
            return to_tensor(array)
        if (tensor := lent_tensor(array)) is not None:
            return tensor
        if array.flags.carray:  # contiguous, aligned to its items, writable
            tensor = self._from_dlpack(array)
            if tensor.data_ptr() % ARGUMENT_ALIGNMENT == 0:
                return tensor
        held = self._buffers[index]
        if held is None:
            buffer = aligned_empty(*self._inputs[index])
            held = self._buffers[index] = (buffer, self._from_dlpack(buffer))
        np.copyto(held[0], array)
        return held[1]

    def _arrays(self, arguments: Sequence[Any], results: list[Any]) -> list[np.ndarray]:
        """What the function returned, as arrays that share memory with nothing else."""
        if self._constants is None:
            return self._first_outputs(results)
        taken = {argument.data_ptr() for argument in arguments}
        outputs = []
        for tensor in results:
            address = tensor.data_ptr()
            shared = address in taken or address in self._constants or self._all_weights.contain(address)
            outputs.append(to_array(tensor, copy=shared))
            taken.add(address)
        return outputs

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
