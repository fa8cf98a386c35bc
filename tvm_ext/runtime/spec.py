"""What is known of a compiled model besides its code: tensors, machine, versions, report. JSON both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from ..core.errors import ArtifactError, InputError
from .consistency import check_consistency
from .drivers import Offload
from .expansion import Compact
from .interface import Body as Body
from .interface import Dim as Dim
from .interface import Program as Program
from .interface import Specs as Specs
from .interface import TensorSpec as TensorSpec
from .interface import View as View
from .plain import read, row
from .sizes.symbols import Symbol
from .tvm_runtime import tvm_version, version_of
from .values import Value as Value

FORMAT_VERSION = 9


@dataclass(frozen=True)
class Metadata:
    """What an artifact says of itself.

    Attributes:
        inputs, outputs: in the order of the compiled functions, by their ONNX names; counts are the last outputs.
        weights: of all programs, each once.
        compact: weights that an exported file stores smaller, ascending.
        expanded: whether this file holds them as kernels read them too, behind all others: an entry of the cache,
            which is ready at once.
        programs: the compiled functions: one, or one for each size of a symbolic batch, ascending; or the one of any
            size, and behind it those of which some sizes are fixed.
        threads: threads the kernels were made for.
        parallel: whether any kernel runs on the thread pool.
        machine: the machine compiled for: "isa", "mcpu", "triple", "features" and more.
        versions: of "tvm", "tvm_ffi" and "tvm_ext".
        model: "name" and "sha256" of the model.
        report: what the compiler did; plain JSON that the runtime does not look into.
        offloads: regions that back ends run, and those of control flow.
        bodies: functions of loops.
        symbols: sizes that it takes within bounds; none of a program of numbers, or of a batch of rows.
        state: names of each output that is an input of the next call, and of that input.
        arguments, results: inputs and outputs as callers have them, of a model that takes, or makes, sequences or
            optionals; none of any other. A last output may be none of them: a program makes one tensor at least.
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
    arguments: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    format: int = FORMAT_VERSION

    def interface(self, program: Program) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """What a program takes before its weights, and makes: arrays of its batch, or of the bounds and the sizes."""
        sides = self.inputs, self.outputs
        if not self.symbols:
            inputs, outputs = ([spec.at(program.batch) for spec in side] for side in sides)
            return inputs, outputs
        inputs, outputs = ([spec.sized(program.planned) for spec in side] for side in sides)
        free = [TensorSpec("sizes", (len(program.symbols),), "int64")] if program.symbols else []
        return [*inputs, *free], outputs

    def program_at(self, sizes: Mapping[str, int]) -> Program:
        """The program of symbolic sizes that runs a call: of those that take its sizes, the one with most fixed.

        Raises:
            InputError: none takes them.
        """
        able = [program for program in self.programs if program.takes(sizes)]
        if not able:
            wrong = [(sized, sized.why_not(sizes[sized.name])) for sized in self.programs[0].symbols]
            symbol, why = next((pair for pair in wrong if pair[1]), (self.symbols[0], ""))
            raise InputError(f"sizes {dict(sizes)}: {why or 'no program'}", fix=symbol.fix_for(sizes[symbol.name]))
        return max(able, key=lambda program: len(program.fixed))

    def stored(self) -> tuple[TensorSpec, ...]:
        """The arrays in an artifact, in order."""
        small = {
            form.weight: TensorSpec(f"compact{form.weight}", form.shape, self.weights[form.weight].dtype)
            for form in self.compact
        }
        if self.expanded:
            return (*self.weights, *small.values())
        return tuple(small.get(i, weight) for i, weight in enumerate(self.weights))

    def to_json(self) -> str:
        """One line of JSON."""
        names = [field.name for field in fields(self)]
        return json.dumps(dict(zip(names, row(self), strict=True)), separators=(",", ":"))

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
        metadata = cls(**stated)
        check_consistency(metadata)
        return metadata


def installed_versions() -> dict[str, str]:
    """Versions that an artifact records, and must find again: of "tvm", "tvm_ffi" and "tvm_ext"."""
    import tvm_ffi

    own = version_of("tvm-ext") or "0+unknown"  # of a source tree that was never installed
    return {"tvm": tvm_version(), "tvm_ffi": tvm_ffi.__version__, "tvm_ext": own}
