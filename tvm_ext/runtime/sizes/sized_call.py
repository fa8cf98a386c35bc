"""Calls of a program that is planned at the bounds of its symbols: it works on arrays of the bounds.

Inputs are copied into the beginning of such arrays, and outputs out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ..memory.arrays import aligned_empty
from .symbols import Symbol, named_sizes, shape_at

if TYPE_CHECKING:
    from ..function import Function
    from ..spec import TensorSpec


#: Sets of shapes whose plans are kept.
_MOST_PLANS = 256


@dataclass
class SizedCall:
    """Calls of a function that is planned at the bounds of its symbols, with arrays of any size within them.

    Attributes:
        function: takes arrays of the bounds, and the sizes last.
        inputs, outputs: of the model.
        symbols: in the order of the elements of `sizes`.
    """

    function: Function
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    symbols: Sequence[Symbol]
    _inputs: list[np.ndarray] = field(init=False)
    _outputs: list[np.ndarray | None] = field(init=False)

    def __post_init__(self) -> None:
        bounds = {symbol.name: symbol.bound for symbol in self.symbols}
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}
        self._sizes = aligned_empty((len(self.symbols),), np.dtype("int64"))
        self._inputs = [_zeros(shape_at(spec.shape, bounds), spec.numpy_dtype) for spec in self.inputs]
        outputs = [aligned_empty(shape_at(spec.shape, bounds), spec.numpy_dtype) for spec in self.outputs]
        self._outputs = [memory if self.function.takes(index, memory) else None for index, memory in enumerate(outputs)]

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once; what comes back shares memory with nothing else.

        Raises:
            InputError: see :func:`named_sizes`.
        """
        shapes = tuple(array.shape for array in arrays)
        plan = self._plans.get(shapes) or self._planned(shapes)
        self._sizes[:] = plan.sizes
        fed = [
            array if whole is None else _filled(memory, array, whole)
            for memory, array, whole in zip(self._inputs, arrays, plan.inputs, strict=True)
        ]
        results = self.function.call([*fed, self._sizes], self._outputs)
        return [np.array(result[index]) for index, result in zip(plan.outputs, results, strict=True)]

    def _planned(self, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
        sizes = named_sizes(self.inputs, shapes, self.symbols)
        inputs = [None if shape == memory.shape else _beginning(shape)
                  for shape, memory in zip(shapes, self._inputs, strict=True)]  # fmt: skip
        outputs = [shape_at(spec.shape, sizes) for spec in self.outputs]
        for spec, shape in zip(self.outputs, outputs, strict=True):
            if min(shape, default=0) < 0:
                raise InputError(
                    f"output {spec.name!r} would be {shape} for {sizes}: these sizes do not fit each other"
                )
        plan = _Plan(tuple(sizes.values()), inputs, [_beginning(shape) for shape in outputs])
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[shapes] = plan
        return plan


@dataclass(frozen=True)
class _Plan:
    """What a call with arrays of some shapes does.

    Attributes:
        sizes: of the symbols.
        inputs: where each input lies in an array of the bounds; None of one that is such an array.
        outputs: where each output lies.
    """

    sizes: tuple[int, ...]
    inputs: Sequence[tuple[slice, ...] | None]
    outputs: Sequence[tuple[slice, ...]]


def _beginning(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    memory = aligned_empty(shape, dtype)
    memory[...] = 0
    return memory


def _filled(memory: np.ndarray, array: np.ndarray, index: tuple[slice, ...]) -> np.ndarray:
    memory[index] = array
    return memory
