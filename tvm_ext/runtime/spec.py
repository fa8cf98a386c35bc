"""What is known of a compiled model besides its code: tensors, machine, versions, report. JSON both ways."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

import numpy as np

from ..core.errors import ArtifactError
from .consistency import check_consistency
from .drivers import Offload
from .expansion import Compact
from .plain import read, row
from .sizes.symbols import Symbol, multiple_of_symbol, shape_at
from .tvm_runtime import tvm_version

FORMAT_VERSION = 6

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
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec("", self.shape, self.dtype)

    @property
    def end(self) -> int:
        """Where it ends, in bytes from the start of the arena."""
        return self.offset + self.spec.nbytes


@dataclass(frozen=True)
class Program:
    """One function of the library: the whole model, for one size of the batch if that is symbolic.

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
    """

    function: str
    weights: tuple[int, ...]
    destinations: tuple[tuple[int, tuple[int, ...]], ...] = ()
    batch: int = 0
    cost: float = 0.0
    arena: tuple[View, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()

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


@dataclass(frozen=True)
class Metadata:
    """What an artifact says of itself.

    Attributes:
        inputs, outputs: in the order of the compiled functions, by their ONNX names.
        weights: of all programs, each once.
        compact: weights that an exported file stores smaller, ascending.
        expanded: whether this file holds them as kernels read them too, behind all others: an entry of the cache,
            which is mapped, and ready at once.
        programs: the compiled functions: one, or one for each size of a symbolic batch, ascending.
        threads: threads the kernels were made for.
        parallel: whether any kernel runs on the thread pool.
        machine: the machine compiled for: "isa", "mcpu", "triple", "features" and more.
        versions: of "tvm", "tvm_ffi" and "tvm_ext".
        model: "name" and "sha256" of the model.
        report: what the compiler did; plain JSON that the runtime does not look into.
        offloads: regions that back ends run, and those of control flow.
        bodies: functions of loops.
        symbols: sizes that one program takes within bounds; none of a program of numbers, or of a batch of rows.
        state: names of each output that is an input of the next call, and of that input.
        format: version of the artifact format.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[TensorSpec, ...]
    programs: tuple[Program, ...]
    threads: int
    parallel: bool
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    model: Mapping[str, str]
    report: Mapping[str, Any] = field(default_factory=dict)
    compact: tuple[Compact, ...] = ()
    expanded: bool = False
    offloads: tuple[Offload, ...] = ()
    bodies: tuple[Body, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    format: int = FORMAT_VERSION

    def interface(self, program: Program) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """What a program takes before its weights, and makes: arrays of its batch, or of the bounds and the sizes."""
        sides = self.inputs, self.outputs
        if not self.symbols:
            inputs, outputs = ([spec.at(program.batch) for spec in side] for side in sides)
            return inputs, outputs
        bounds = {symbol.name: symbol.bound for symbol in self.symbols}
        inputs, outputs = ([spec.sized(bounds) for spec in side] for side in sides)
        return [*inputs, TensorSpec("sizes", (len(self.symbols),), "int64")], outputs

    def stored(self) -> tuple[TensorSpec, ...]:
        """The arrays in an artifact, in order."""
        small = {
            one.weight: TensorSpec(f"compact{one.weight}", one.shape, self.weights[one.weight].dtype)
            for one in self.compact
        }
        if self.expanded:
            return (*self.weights, *small.values())
        return tuple(small.get(i, weight) for i, weight in enumerate(self.weights))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({field.name: row(getattr(self, field.name)) for field in fields(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Metadata:
        """Read what :meth:`to_json` wrote.

        Raises:
            ArtifactError: it is no JSON, a field is missing or of another type, or fields contradict each other; the
                message names it.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"the metadata is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ArtifactError(f"the metadata is no JSON object but {type(values).__name__}")
        stated = {}
        for key, kind in get_type_hints(cls).items():
            try:
                stated[key] = read(kind, values.get(key))
            except (TypeError, ValueError, OverflowError) as error:
                raise ArtifactError(f"metadata field {key!r}: {error}") from error
        found = cls(**stated)
        check_consistency(found)
        return found


def installed_versions() -> dict[str, str]:
    """Versions that an artifact records, and must find again: of "tvm", "tvm_ffi" and "tvm_ext"."""
    from importlib import metadata

    import tvm_ffi

    try:
        own = metadata.version("tvm-ext")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        own = "0+unknown"
    return {"tvm": tvm_version(), "tvm_ffi": tvm_ffi.__version__, "tvm_ext": own}
