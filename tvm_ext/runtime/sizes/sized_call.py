"""Calls of programs that are planned at the bounds of their symbols: they work on arrays of the bounds.

Inputs are copied into the beginning of such arrays, and outputs out of it; what has one size in all calls, such as a
state, is read and written where it lies. A program whose sizes are all fixed takes arrays as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError
from ..function import Function
from ..memory.arrays import Arrays, Places, aligned_empty, lend
from ..spec import Metadata, Specs
from .symbols import named_sizes, shape_at

#: Sets of shapes whose plans are kept.
_MOST_PLANS = 256


class SizedCalls:
    """Calls of a model of symbolic sizes, with arrays of any size within its bounds.

    Args:
        metadata: of the model.
        functions: of its programs, in order; each takes arrays of its bounds, and the sizes of its symbols last.
    """

    def __init__(self, metadata: Metadata, functions: Sequence[Function]) -> None:
        self._metadata, self._functions = metadata, functions
        self._memory: dict[int, _Memory] = {}
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}

    def __call__(self, arrays: Arrays, into: Places | None) -> list[np.ndarray]:
        """Run once; what comes back shares memory with nothing else, but for `into`.

        Raises:
            InputError: see :func:`named_sizes` and :meth:`..spec.Metadata.program_at`.
        """
        plan = self._plan(arrays)
        memory, places = plan.memory, plan.places(arrays, into)
        if memory is None:
            return plan.function.call(arrays, places)
        for output, taken in plan.grown.items():
            _begin(places[output], arrays[taken])
        unread = {*plan.grown.values()}
        fed = [
            array if whole is None or held is None else held if taken in unread else _filled(held, array, whole)
            for taken, (held, array, whole) in enumerate(zip(memory.inputs, arrays, plan.inputs, strict=False))
        ]
        results = plan.function.call([*fed, plan.sizes], places)
        parts = (r if index is None else r[index] for r, index in zip(results, plan.outputs, strict=True))
        return [
            part if place is not own else part.copy()
            for part, place, own in zip(parts, places, memory.outputs, strict=True)
        ]

    def exact(self, arrays: Arrays) -> Function | None:
        """The function that takes arrays as they are; None if its program has other sizes.

        Raises:
            InputError: see :meth:`__call__`.
        """
        plan = self._plan(arrays)
        return plan.function if plan.memory is None else None

    def _plan(self, arrays: Arrays) -> _Plan:
        shapes = tuple(array.shape for array in arrays)
        return self._plans.get(shapes) or self._planned(shapes)

    def _planned(self, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
        model = self._metadata
        sizes = named_sizes(model.inputs, shapes, model.symbols)
        program = model.program_at(sizes)
        number = model.programs.index(program)
        function = self._functions[number]
        takes, bounds = ([spec.sizes for spec in side] for side in model.interface(program))
        grown = {output: taken for output, taken in program.updates if bounds[output] != takes[taken]}
        if program.symbols and number not in self._memory:
            whole = {i for i, spec in enumerate(model.inputs) if all(isinstance(dim, int) for dim in spec.shape)}
            self._memory[number] = _Memory.of(*model.interface(program), function, whole, {*grown.values()})
        memory = self._memory.get(number)
        inputs = [None if held is None or shape == held.shape else _beginning(shape)
                  for shape, held in zip(shapes, memory.inputs if memory else (), strict=False)]  # fmt: skip
        outputs = [shape_at(spec.shape, sizes) for spec in model.outputs]
        for spec, shape in zip(model.outputs, outputs, strict=True):
            if min(shape, default=0) < 0:
                wrong = f"output {spec.name!r} would be {shape} for {sizes}"
                raise InputError(f"{wrong}: these sizes do not fit each other")
        values = [sizes[symbol.name] for symbol in program.symbols]
        now = _memory((len(values),), np.dtype(np.int64), values)
        parts = [None if shape == whole else _beginning(shape) for shape, whole in zip(outputs, bounds, strict=True)]
        plan = _Plan(function, memory, now, inputs, parts, bounds, grown, frozenset(dict(program.updates)))
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[shapes] = plan
        return plan


@dataclass(frozen=True)
class _Memory:
    """Arrays of the bounds that calls of a program use.

    Attributes:
        inputs: of the model; None of one size alone.
        outputs: None where the program writes to no such array.
    """

    inputs: Places
    outputs: Places

    @classmethod
    def of(cls, inputs: Specs, outputs: Specs, function: Function, whole: Set[int], unread: Set[int]) -> _Memory:
        """Arrays for what a program takes, and makes.

        Args:
            whole: numbers of inputs of one size alone, which are taken where they lie: the caches of a language model.
            unread: of those that it does not read; their arrays are never touched.
        """
        taken = [
            None if number in whole else _memory(spec.sizes, spec.numpy_dtype, None if number in unread else 0)
            for number, spec in enumerate(inputs[:-1])
        ]
        memory = [_memory(spec.sizes, spec.numpy_dtype) for spec in outputs]
        return cls(taken, [array if function.takes(i, array) else None for i, array in enumerate(memory)])


@dataclass(frozen=True)
class _Plan:
    """What a call with arrays of some shapes does.

    Attributes:
        function: that runs it.
        memory: arrays of its bounds; None of a program without symbols, which takes arrays as they are.
        sizes: of its symbols.
        inputs: where each input lies in an array of the bounds; None of one that is such an array.
        outputs: where each output lies; None of one that is such an array.
        bounds: shapes of the arrays of outputs.
        grown: output that the program writes behind an input which its array begins with -> that input.
        updated: outputs that the program writes over or behind an input.
    """

    function: Function
    memory: _Memory | None
    sizes: np.ndarray
    inputs: Sequence[tuple[slice, ...] | None]
    outputs: Sequence[tuple[slice, ...] | None]
    bounds: Sequence[tuple[int, ...]]
    grown: Mapping[int, int]
    updated: Set[int]

    def places(self, arrays: Arrays, into: Places | None) -> Places:
        """The memory that each output is written to: the caller's, where it is of the bounds, the output has all of it,
        and it is no input's, unless the output updates that; else that of the bounds."""
        held = [None] * len(self.bounds) if self.memory is None else self.memory.outputs
        if into is None:
            return held
        return [
            place
            if place is not None and place.shape == bound
            and (self.memory is None or (own is not None and (index is None or output in self.grown)))
            and (output in self.updated or not any(np.may_share_memory(place, array) for array in arrays))
            else own
            for output, (place, own, bound, index) in enumerate(zip(into, held, self.bounds, self.outputs, strict=True))
        ]  # fmt: skip


def _beginning(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _memory(shape: Sequence[int], dtype: np.dtype[Any], filling: Any = None) -> np.ndarray:
    """An array that is passed call after call, of zeros or the like if `filling` is not None."""
    memory = aligned_empty(tuple(shape), dtype)
    if filling is not None:
        memory[...] = filling
    lend(memory)
    return memory


def _begin(memory: np.ndarray | None, array: np.ndarray) -> None:
    """Have an array of the bounds begin with another one, which may be its beginning."""
    assert memory is not None
    if memory.ctypes.data != array.ctypes.data:
        memory[_beginning(array.shape)] = array


def _filled(memory: np.ndarray, array: np.ndarray, index: tuple[slice, ...]) -> np.ndarray:
    memory[index] = array
    return memory
