"""Calls of programs that are planned at the bounds of their symbols: they work on arrays of the bounds.

Inputs are copied into the beginning of such arrays, and outputs out of it; what has one size in all calls, such as a
state, is read and written where it lies. A program whose sizes are all fixed takes arrays as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ..memory.arrays import aligned_empty
from .symbols import named_sizes, shape_at

if TYPE_CHECKING:
    from ..function import Function
    from ..spec import Metadata, TensorSpec


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

    def __call__(self, arrays: Sequence[np.ndarray], into: Sequence[np.ndarray | None] | None) -> list[np.ndarray]:
        """Run once; what comes back shares memory with nothing else, but for `into`.

        Raises:
            InputError: see :func:`named_sizes` and :meth:`..spec.Metadata.program_at`.
        """
        shapes = tuple(array.shape for array in arrays)
        plan = self._plans.get(shapes) or self._planned(shapes)
        if (memory := plan.memory) is None:
            return plan.function.call(arrays, into)
        memory.sizes[:] = plan.sizes
        fed = [
            array if whole is None else _filled(held, array, whole)
            for held, array, whole in zip(memory.inputs, arrays, plan.inputs, strict=True)
        ]
        places = [
            own if given is None or own is None or index is not None else given
            for given, own, index in zip(
                into or [None] * len(memory.outputs), memory.outputs, plan.outputs, strict=True
            )
        ]
        results = plan.function.call([*fed, memory.sizes], places)
        return [
            result if place is not own else np.array(result if index is None else result[index])
            for result, place, own, index in zip(results, places, memory.outputs, plan.outputs, strict=True)
        ]

    def _planned(self, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
        model = self._metadata
        sizes = named_sizes(model.inputs, shapes, model.symbols)
        program = model.program_at(sizes)
        number = model.programs.index(program)
        function = self._functions[number]
        if program.symbols and number not in self._memory:
            self._memory[number] = _Memory.of(*model.interface(program), function)
        memory = self._memory.get(number)
        inputs = [None if shape == held.shape else _beginning(shape)
                  for shape, held in zip(shapes, memory.inputs if memory else (), strict=False)]  # fmt: skip
        outputs = [shape_at(spec.shape, sizes) for spec in model.outputs]
        for spec, shape in zip(model.outputs, outputs, strict=True):
            if min(shape, default=0) < 0:
                raise InputError(
                    f"output {spec.name!r} would be {shape} for {sizes}: these sizes do not fit each other"
                )
        bounds = [spec.sizes for spec in model.interface(program)[1]]
        values = tuple(sizes[symbol.name] for symbol in program.symbols)
        parts = [None if shape == whole else _beginning(shape) for shape, whole in zip(outputs, bounds, strict=True)]
        plan = _Plan(function, memory, values, inputs, parts)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[shapes] = plan
        return plan


@dataclass(frozen=True)
class _Memory:
    """Arrays of the bounds that calls of a program use.

    Attributes:
        inputs: of the model.
        sizes: of the program's symbols.
        outputs: None where the program writes to no such array.
    """

    inputs: Sequence[np.ndarray]
    sizes: np.ndarray
    outputs: Sequence[np.ndarray | None]

    @classmethod
    def of(cls, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], function: Function) -> _Memory:
        """Arrays for what a program takes, and makes."""
        *taken, sizes = [_zeros(spec.sizes, spec.numpy_dtype) for spec in inputs]
        made = [aligned_empty(spec.sizes, spec.numpy_dtype) for spec in outputs]
        return cls(taken, sizes, [one if function.takes(index, one) else None for index, one in enumerate(made)])


@dataclass(frozen=True)
class _Plan:
    """What a call with arrays of some shapes does.

    Attributes:
        function: that runs it.
        memory: arrays of its bounds; None of a program without symbols, which takes arrays as they are.
        sizes: of its symbols.
        inputs: where each input lies in an array of the bounds; None of one that is such an array.
        outputs: where each output lies; None of one that is such an array.
    """

    function: Function
    memory: _Memory | None
    sizes: tuple[int, ...]
    inputs: Sequence[tuple[slice, ...] | None]
    outputs: Sequence[tuple[slice, ...] | None]


def _beginning(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    memory = aligned_empty(shape, dtype)
    memory[...] = 0
    return memory


def _filled(memory: np.ndarray, array: np.ndarray, index: tuple[slice, ...]) -> np.ndarray:
    memory[index] = array
    return memory
