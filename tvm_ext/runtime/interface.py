"""The interface of a compiled function: tensors, memory, and sizes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .sizes.symbols import Symbol, multiple_of_symbol, shape_at

Dim = int | str
"""A number, or for a symbolic dimension its name, "N", or what it is of others: "12*N", "(W + 7) // 8"."""


@dataclass(frozen=True)
class Count:
    """Which output of a program says how much of another one there is, whose size values decide.

    Attributes:
        axis: along which the other one has the largest size that it can have, and means something up to the count.
        output: number of that which has the count, one int64.
    """

    axis: int
    output: int


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (numpy's name, or ml_dtypes': "float32", "bfloat16") of a tensor; `count` of an output."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    count: Count | None = None

    @functools.cached_property
    def batch_axis(self) -> int | None:
        """The symbolic dimension; None if all are numbers."""
        return next((axis for axis, dim in enumerate(self.shape) if isinstance(dim, str)), None)

    @functools.cached_property
    def rows_each(self) -> int:
        """Its size along :attr:`batch_axis` for a row of the batch: 12 for "12*N"; 0 if all dimensions are numbers."""
        return 0 if self.batch_axis is None else multiple_of_symbol(str(self.shape[self.batch_axis]))[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape.

        Raises:
            TypeError: it is symbolic: ask for it :meth:`at` a size.
        """
        if self.batch_axis is not None:
            raise TypeError(f"{self.name}: {self} has no sizes before its batch is known: use at()")
        return tuple(dim for dim in self.shape if isinstance(dim, int))

    def sizes_at(self, batch: int) -> tuple[int, ...]:
        """The shape for a batch of this size."""
        return tuple(dim if isinstance(dim, int) else self.rows_each * batch for dim in self.shape)

    def at(self, batch: int) -> TensorSpec:
        """The tensor of a batch of this size."""
        return self if self.batch_axis is None else replace(self, shape=self.sizes_at(batch))

    def sized(self, sizes: Mapping[str, int]) -> TensorSpec:
        """The tensor for these sizes of symbols."""
        return replace(self, shape=shape_at(self.shape, sizes))

    def axis_of_growth(self, output: TensorSpec) -> int | None:
        """The one axis along which an output that is this input in the next call differs from it; None if there is
        none, or they differ otherwise."""
        if output.dtype != self.dtype or len(output.shape) != len(self.shape):
            return None
        axes = [axis for axis, sizes in enumerate(zip(output.shape, self.shape, strict=True)) if len({*sizes}) > 1]
        return axes[0] if len(axes) == 1 else None

    @functools.cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype as numpy knows it.

        Raises:
            TypeError: numpy and ml_dtypes do not know it.
        """
        try:
            return np.dtype(self.dtype)
        except TypeError:
            import tvm.runtime  # noqa: F401  (it imports ml_dtypes, which gives numpy these names)

            return np.dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.sizes) * self.numpy_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


Specs = Sequence[TensorSpec]


def counted_specs(outputs: Specs) -> tuple[TensorSpec, ...]:
    """The outputs of a program as callers have them: without the counts, whose names are the sizes that they count."""
    counts = {spec.count.output for spec in outputs if spec.count is not None}
    return tuple(_by_name(spec, outputs) for number, spec in enumerate(outputs) if number not in counts)


def _by_name(spec: TensorSpec, outputs: Specs) -> TensorSpec:
    if (count := spec.count) is None:
        return spec
    dims = [outputs[count.output].name if axis == count.axis else dim for axis, dim in enumerate(spec.shape)]
    return TensorSpec(spec.name, tuple(dims), spec.dtype)


def counted_arrays(results: Sequence[np.ndarray], outputs: Specs) -> list[np.ndarray]:
    """What a program returned as callers have it: of each counted output, as much as there is, in memory of its own."""
    counts = {spec.count.output for spec in outputs if spec.count is not None}
    pairs = [pair for number, pair in enumerate(zip(results, outputs, strict=True)) if number not in counts]
    return [array if spec.count is None else _beginning(array, spec.count, results) for array, spec in pairs]


def _beginning(array: np.ndarray, count: Count, results: Sequence[np.ndarray]) -> np.ndarray:
    index = (*[slice(None)] * count.axis, slice(max(int(results[count.output][0]), 0)))
    return array[index].copy()


@dataclass(frozen=True)
class View:
    """Memory in the arena of a program: where it starts, in bytes, and the shape and dtype in which kernels see it."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec("", self.shape, self.dtype)

    @property
    def end(self) -> int:
        """Where it ends, in bytes from the start of the arena."""
        return self.offset + self.spec.nbytes


@dataclass(frozen=True)
class Program:
    """One function of the library: the whole model, for one size of a batch of rows, or sizes within bounds.

    Attributes:
        function: its name. It takes the inputs, its weights, memory for the outputs of `destinations`, and `arena`.
        weights: which of the artifact's weights it takes, in order.
        destinations: (output, shape) of each output that it writes into memory of the caller's: the output's number,
            and the shape in which the function takes the memory. Other outputs it returns.
        batch: size of the batch; 0 if no dimension is symbolic.
        cost: estimated seconds of a call.
        arena: memory that it works in.
        updates: (output, input) of each destination that must hold the input's values before the call: the function
            writes only what changes.
        fixed: (name, size) of symbols of the model that have this size in it, and no other.
        symbols: the others, within its bounds; it takes their sizes as one more argument.
    """

    function: str
    weights: tuple[int, ...]
    destinations: tuple[tuple[int, tuple[int, ...]], ...] = ()
    batch: int = 0
    cost: float = 0.0
    arena: tuple[View, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()
    symbols: tuple[Symbol, ...] = ()

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether it runs calls of these sizes of the model's symbols."""
        fixed = all(sizes[name] == size for name, size in self.fixed)
        return fixed and not any(symbol.why_not(sizes[symbol.name]) for symbol in self.symbols)

    @property
    def planned(self) -> dict[str, int]:
        """The sizes that its arrays have: those that are fixed, and the bounds of the others."""
        return {**dict(self.fixed), **{symbol.name: symbol.bound for symbol in self.symbols}}

    @property
    def arena_bytes(self) -> int:
        """Size of the arena."""
        return max((view.end for view in self.arena), default=0)


@dataclass(frozen=True)
class Body:
    """The function of a loop's body.

    Attributes:
        name: by which loops know it.
        inputs, outputs: of one step, of static shapes.
        program: the function.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    program: Program
