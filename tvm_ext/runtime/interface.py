"""What a compiled function takes and makes: tensors, memory, and sizes. JSON both ways."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import ArtifactError
from .consistency import check_tensor
from .sizes.symbols import Symbol, dimension, multiple_of_symbol, shape_at

Dim = int | str
"""A number, or for a symbolic dimension its name, "N", or what it is of others: "12*N", "(W + 7) // 8"."""


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (numpy's name, or ml_dtypes': "float32", "bfloat16") of a tensor."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str

    @property
    def batch_axis(self) -> int | None:
        """The symbolic dimension; None if all are numbers."""
        return next((axis for axis, dim in enumerate(self.shape) if isinstance(dim, str)), None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape.

        Raises:
            TypeError: it is symbolic: ask for it :meth:`at` a size.
        """
        if self.batch_axis is not None:
            raise TypeError(f"{self.name}: {self} has no sizes before its batch is known: use at()")
        return tuple(dim for dim in self.shape if isinstance(dim, int))

    def at(self, batch: int) -> TensorSpec:
        """The tensor of a batch of this size."""
        if self.batch_axis is None:
            return self
        dims = tuple(multiple_of_symbol(d)[0] * batch if isinstance(d, str) else d for d in self.shape)
        return TensorSpec(self.name, dims, self.dtype)

    def sized(self, sizes: Mapping[str, int]) -> TensorSpec:
        """The tensor for these sizes of symbols."""
        return TensorSpec(self.name, shape_at(self.shape, sizes), self.dtype)

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


@dataclass(frozen=True)
class View:
    """Memory in the arena of a program: where it starts, in bytes, and the shape and dtype in which kernels see it."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def end(self) -> int:
        """Where it ends, in bytes from the start of the arena."""
        return self.offset + TensorSpec("", self.shape, self.dtype).nbytes

    @classmethod
    def of(cls, row: Any) -> View:
        """From the JSON.

        Raises:
            TypeError, ValueError: it is none.
        """
        offset, shape, dtype = row
        if not all(type(n) is int and n >= 0 for n in (offset, *shape)):
            raise TypeError("a view is [offset, shape, dtype]")
        check_tensor(TensorSpec("", tuple(shape), dtype))
        return cls(offset, tuple(shape), dtype)

    def row(self) -> list[Any]:
        """Plain values for JSON."""
        return [self.offset, list(self.shape), self.dtype]


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

    @classmethod
    def of(cls, row: Any, weights: int) -> Program:
        """One program of the JSON, checked.

        Args:
            row: what the JSON holds.
            weights: how many weights there are.

        Raises:
            ArtifactError: a field is missing or of another type.
        """
        try:
            function, indices, destinations, batch, cost, arena, updates, fixed, symbols = row
            if not (isinstance(function, str) and type(batch) is int and isinstance(cost, int | float)):
                raise TypeError(
                    "a row is [function, weights, destinations, batch, cost, arena, updates, fixed, symbols]"
                )
            if not all(type(i) is int and 0 <= i < weights for i in indices):
                raise ValueError(f"weights are numbers below {weights}")
            into = tuple((output, tuple(shape)) for output, shape in destinations)
            if not all(type(n) is int for output, shape in into for n in (output, *shape)):
                raise TypeError("a destination is [output, shape]")
            pairs = tuple((output, taken) for output, taken in updates)
            if not all(type(n) is int for pair in pairs for n in pair):
                raise TypeError("an update is [output, input]")
            sizes = tuple((name, size) for name, size in fixed)
            if not all(isinstance(name, str) and type(size) is int and 0 <= size < 1 << 31 for name, size in sizes):
                raise TypeError("what is fixed is [name, size]")
            views, free = tuple(map(View.of, arena)), tuple(map(Symbol.of, symbols))
            return cls(function, tuple(indices), into, batch, float(cost), views, pairs, sizes, free)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArtifactError(f"metadata field 'programs' has {row!r:.300}: {error}") from error

    def row(self) -> list[Any]:
        """Plain values for JSON."""
        into = [[output, list(shape)] for output, shape in self.destinations]
        arena, updates = [view.row() for view in self.arena], [list(pair) for pair in self.updates]
        fixed, symbols = [list(pair) for pair in self.fixed], [symbol.row() for symbol in self.symbols]
        return [self.function, list(self.weights), into, self.batch, self.cost, arena, updates, fixed, symbols]

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether it runs calls of these sizes of the model's symbols."""
        return all(sizes[name] == size for name, size in self.fixed) and not any(
            symbol.why_not(sizes[symbol.name]) for symbol in self.symbols
        )

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

    @classmethod
    def of(cls, row: Any, weights: int) -> Body:
        """One body of the JSON, checked.

        Raises:
            ArtifactError: a field is missing or of another type.
        """
        if not (isinstance(row, list) and len(row) == 4 and isinstance(row[0], str)):
            raise ArtifactError(f"metadata field 'bodies' has {row!r:.300}: [name, inputs, outputs, program] is needed")
        inputs, outputs = (tuple(tensor_of("bodies", one) for one in side) for side in row[1:3])
        return cls(row[0], inputs, outputs, Program.of(row[3], weights))

    def row(self) -> list[Any]:
        """Plain values for JSON."""
        sides = [[[t.name, list(t.shape), t.dtype] for t in side] for side in (self.inputs, self.outputs)]
        return [self.name, *sides, self.program.row()]


def tensor_of(key: str, row: Any) -> TensorSpec:
    """One tensor of the JSON, checked."""
    try:
        name, shape, dtype = row
        if not (isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list)):
            raise TypeError("a row is [name, shape, dtype]")
        for dim in shape:
            if isinstance(dim, str) and key in ("inputs", "outputs"):
                dimension(dim)
            elif type(dim) is not int or dim < 0:
                raise ValueError("dimensions are whole numbers, 0 or more")
        spec = TensorSpec(name, tuple(shape), dtype)
        check_tensor(spec)
        return spec
    except Exception as error:  # numpy reads odd dtypes as Python literals, with whatever that raises
        raise ArtifactError(f"metadata field {key!r} has the tensor {row!r:.300}: {error}") from error
