"""Whether the parts of an artifact's metadata fit each other, before anything is allocated or computed by them.

The checksum says that a file is what somebody wrote. It may have been written to be read wrongly.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import ArtifactError
from .expansion import Compact
from .interface import counted_specs
from .sizes.symbols import Symbol, dimension, multiple_of_symbol, shape_at
from .values import ABSENT, SEQUENCE, TENSOR

if TYPE_CHECKING:
    from .spec import Metadata, Program, TensorSpec

#: As numpy 1 has it.
_MOST_DIMENSIONS = 32
#: Of a machine that this library may be asked to use all of.
_MOST_THREADS = 4096
#: Of the memory that a program works in.
_MOST_ARENA = 1 << 40
#: How many times as large as its stored form a weight may be; Winograd's are up to 6.25 times as large.
_MOST_EXPANSION = 16


def check_tensor(spec: TensorSpec, symbolic: bool = False) -> None:
    """See that numpy can have such an array.

    Args:
        symbolic: whether dimensions may be symbolic.

    Raises:
        TypeError, ValueError: its dtype is none of numbers, or its shape is none, or too large.
    """
    if any(dim < 0 if isinstance(dim, int) else not symbolic for dim in spec.shape):
        raise ValueError("dimensions are whole numbers, 0 or more")
    dtype = spec.numpy_dtype
    numeric = dtype.kind in "biuf" or dtype.type.__module__.startswith("ml_dtypes")
    if not numeric or dtype.name != spec.dtype:
        raise TypeError(f"no dtype of numbers: {spec.dtype!r:.300}")
    sizes = [dim for dim in spec.shape if isinstance(dim, int)]
    if len(spec.shape) > _MOST_DIMENSIONS or math.prod(d or 1 for d in sizes) * dtype.itemsize >= 1 << 62:
        raise ValueError("it is larger than any memory")


def check_consistency(metadata: Metadata) -> None:
    """See that programs, tensors and stored forms of weights fit each other.

    Raises:
        ArtifactError: they do not; names the field.
    """
    _check_texts(metadata)
    _check_tensors(metadata)
    if not metadata.programs:
        raise ArtifactError("metadata field 'programs' is empty")
    for key in ("inputs", "outputs", "bodies"):
        _check_unique(key, (item.name for item in getattr(metadata, key)))
    _check_unique("programs", (program.function for program in metadata.programs))
    if not 1 <= metadata.threads <= _MOST_THREADS:
        raise ArtifactError(f"metadata field 'threads' is {metadata.threads!r:.300}; 1 to {_MOST_THREADS} can be")
    if fixed := metadata.programs[0].fixed:
        raise ArtifactError(f"metadata field 'programs': its first has fixed sizes, {fixed!r:.300}")
    _check_symbols(metadata)
    _check_counts(metadata.outputs)
    _check_values(metadata)
    sides = (*metadata.inputs, *metadata.outputs)
    symbolic = not metadata.symbols and any(spec.batch_axis is not None for spec in sides)
    batches = [program.batch for program in metadata.programs]
    if wrong := {batch for batch in batches if (batch < 1 if symbolic else batch != 0)}:
        raise ArtifactError(f"metadata field 'programs' has programs for batches of {wrong!r:.300}")
    _check_unique("programs", batches if symbolic else (frozenset(program.fixed) for program in metadata.programs))
    pairs = _checked_pairs(metadata)
    for program in metadata.programs:
        _check_program(program, metadata.interface(program)[1], pairs)
    for body in metadata.bodies:
        if body.program.fixed or body.program.symbols:
            raise ArtifactError(f"metadata field 'bodies': {body.name!r:.300} has a program of symbolic sizes")
        _check_program(body.program, body.outputs, frozenset())
    _check_weights(metadata)


def _check_unique(field: str, values: Iterable[Hashable]) -> None:
    """See that no two entries of a field are of one name, one function, or the same sizes."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            raise ArtifactError(f"metadata field {field!r} has {value!r:.300} twice")
        seen.add(value)


def _check_values(metadata: Metadata) -> None:
    """See that inputs and outputs as callers have them are of tensors that there are, each once."""
    outputs = counted_specs(metadata.outputs)
    for key, values, specs in (
        ("arguments", metadata.arguments, metadata.inputs), ("results", metadata.results, outputs),
    ):  # fmt: skip
        for value in values:
            fits = {TENSOR: len(value.tensors) == 1, ABSENT: not value.tensors, SEQUENCE: True}
            if not fits.get(value.kind, False):
                raise ArtifactError(f"metadata field {key!r} has {value!r:.300}: no such value")
        named, known = [name for value in values for name in value.tensors], [spec.name for spec in specs]
        _check_unique(key, (value.name for value in values))
        _check_unique(key, named)
        if not set(named) <= set(known) or (values and key == "arguments" and len(named) < len(known)):
            raise ArtifactError(f"metadata field {key!r} is of tensors {named!r:.300}; there are {known!r:.300}")


#: What must be there, as text.
_TEXTS = {"machine": ("isa", "mcpu", "triple"), "versions": ("tvm", "tvm_ffi"), "model": ("name", "sha256")}


def _check_texts(metadata: Metadata) -> None:
    for field, keys in _TEXTS.items():
        for key in keys:
            if not isinstance(getattr(metadata, field).get(key), str):
                raise ArtifactError(f"metadata field {field}[{key!r}] is not text")
    features = metadata.machine.get("features")
    if not isinstance(features, list) or not all(isinstance(feature, str) for feature in features):
        raise ArtifactError("metadata field machine['features'] is no list of names")


def _check_tensors(metadata: Metadata) -> None:
    bodies = [spec for body in metadata.bodies for spec in (*body.inputs, *body.outputs)]
    sides = {"inputs": metadata.inputs, "outputs": metadata.outputs, "weights": metadata.weights, "bodies": bodies}
    for key, spec in ((key, spec) for key, specs in sides.items() for spec in specs):
        try:
            for dim in spec.shape:
                if isinstance(dim, str) and key in ("inputs", "outputs"):
                    dimension(dim)
            check_tensor(spec, symbolic=key in ("inputs", "outputs"))
        except Exception as error:  # numpy reads odd dtypes as Python literals, with whatever that raises
            wrong = f"the tensor {spec.name!r:.300}, {spec!s:.300}: {error!s:.300}"
            raise ArtifactError(f"metadata field {key!r} has {wrong}") from error


def _check_counts(outputs: Sequence[TensorSpec]) -> None:
    """See that what says how much of an output there is, is one int64, and no such output itself."""
    for spec in outputs:
        if (count := spec.count) is None:
            continue
        known = 0 <= count.output < len(outputs) and 0 <= count.axis < len(spec.shape)
        counter = outputs[count.output] if known else spec
        if (counter.shape, counter.dtype, counter.count) != ((1,), "int64", None):
            raise ArtifactError(f"metadata field 'outputs': {spec.name!r:.300} has no count at {count!r:.300}")


def _check_weights(metadata: Metadata) -> None:
    """See that programs, regions and stored forms are of weights that there are."""
    programs = (*metadata.programs, *(body.program for body in metadata.bodies))
    used = {"programs": [i for program in programs for i in program.weights]}
    used["offloads"] = [item.weight for item in metadata.offloads]
    used["compact"] = [item.weight for item in metadata.compact]
    for key, weights in used.items():
        if wrong := [i for i in weights if not 0 <= i < len(metadata.weights)]:
            raise ArtifactError(f"metadata field {key!r} has weights {wrong!r:.300} of {len(metadata.weights)}")
    if falling := [pair for pair in itertools.pairwise(used["compact"]) if pair[0] >= pair[1]]:
        raise ArtifactError(f"metadata field 'compact' has weights {falling!r:.300}, which do not ascend")
    for item in metadata.compact:
        _check_expansion(item, metadata.weights[item.weight])


def _check_symbols(metadata: Metadata) -> None:
    names = [symbol.name for symbol in metadata.symbols]
    for sized in (*metadata.symbols, *(symbol for program in metadata.programs for symbol in program.symbols)):
        ascending = 0 <= sized.low <= sized.high <= sized.bound < 1 << 31
        if not sized.name.isidentifier() or not ascending or min(sized.high, sized.multiple) < 1:
            raise ArtifactError(f"metadata field 'symbols' has {sized!r:.300}: 0 <= low <= high <= bound is needed")
    for program in metadata.programs:
        _check_sizes(program, metadata.symbols)
    if not names:
        for key in ("inputs", "outputs"):
            for spec in getattr(metadata, key):
                for dim in spec.shape:
                    _check_multiple(dim, key)
        return
    stated = {dim for spec in metadata.inputs for dim in spec.shape if isinstance(dim, str)}
    if len(set(names)) < len(names) or stated != set(names):
        wrong = f"{names!r:.300}; the dimensions of inputs are {sorted(stated)!r:.300}"
        raise ArtifactError(f"metadata field 'symbols' has {wrong}")
    taken = {into for _, into in metadata.state}
    symbolic = [spec for spec in metadata.inputs if spec.name in taken and spec.batch_axis is not None]
    if any(sum(isinstance(dim, str) for dim in spec.shape) > 1 for spec in symbolic):
        raise ArtifactError("metadata field 'state' pairs tensors of which several sizes are known at run time")
    first = {symbol.name: symbol for symbol in metadata.programs[0].symbols}
    if any(replace(first[symbol.name], low=symbol.low) != symbol for symbol in metadata.symbols):
        raise ArtifactError("metadata field 'programs': the first has other bounds than 'symbols' says")
    for program in metadata.programs:
        _check_shapes(metadata, program.planned)
        _check_shapes(metadata, {**dict.fromkeys(names, 1), **dict(program.fixed)}, clamped=True)


def _check_sizes(program: Program, symbols: Sequence[Symbol]) -> None:
    """See that a program has a size or bounds of each symbol of the model, and sizes that it can have."""
    where, known = f"metadata field 'programs': {program.function!r:.300}", {symbol.name: symbol for symbol in symbols}
    own = [*(name for name, _ in program.fixed), *(symbol.name for symbol in program.symbols)]
    if sorted(own) != sorted(symbol.name for symbol in symbols) or any(symbol.low < 1 for symbol in program.symbols):
        raise ArtifactError(f"{where} has sizes {own!r:.300}, not {list(known)!r:.300}")
    for name, size in program.fixed:
        if wrong := known[name].why_not(size):
            raise ArtifactError(f"{where}: {wrong:.300}")


def _check_shapes(metadata: Metadata, sizes: Mapping[str, int], clamped: bool = False) -> None:
    """See that numpy can have inputs and outputs of these sizes; with `clamped`, a dimension below 0 counts as 0."""
    for key in ("inputs", "outputs"):
        for spec in getattr(metadata, key):
            try:
                shape = shape_at(spec.shape, sizes)
                check_tensor(replace(spec, shape=tuple(max(size, 0) for size in shape) if clamped else shape))
            except (KeyError, ArithmeticError, ValueError, TypeError, RecursionError) as error:
                wrong = f"{spec.name!r:.300} has dimensions {spec.shape!r:.300}"
                raise ArtifactError(f"metadata field {key!r}: {wrong}") from error


def _check_multiple(dim: int | str, key: str) -> None:
    try:
        multiple_of_symbol(dim) if isinstance(dim, str) else None
    except ValueError as error:
        raise ArtifactError(f"metadata field {key!r}: {error!s:.300}") from error


def _checked_pairs(metadata: Metadata) -> frozenset[tuple[int, int]]:
    """The numbers of the output and the input of each state.

    Raises:
        ArtifactError: a name is unknown or there twice, or the tensors of a pair differ.
    """
    outputs, inputs = ({spec.name: i for i, spec in enumerate(s)} for s in (metadata.outputs, metadata.inputs))
    for output, taken in metadata.state:
        if output not in outputs or taken not in inputs:
            wrong = f"pairs {output!r:.300} with {taken!r:.300}: no such output or input"
            raise ArtifactError(f"metadata field 'state' {wrong}")
        written, other = metadata.outputs[outputs[output]], metadata.inputs[inputs[taken]]
        sized = bool(metadata.symbols) and other.batch_axis is not None
        alike = (written.shape, written.dtype, written.count) == (other.shape, other.dtype, None) and not sized
        if not alike and not _grows(written, other, metadata.symbols):
            wrong = f"{output!r:.300} is {written!s:.300}, and {taken!r:.300} is {other!s:.300}"
            raise ArtifactError(f"metadata field 'state': {wrong}")
    if any(len(set(side)) < len(side) for side in zip(*metadata.state, strict=True)):
        raise ArtifactError("metadata field 'state' has a name twice")
    return frozenset((outputs[output], inputs[taken]) for output, taken in metadata.state)


def _grows(output: TensorSpec, taken: TensorSpec, symbols: Sequence[Symbol]) -> bool:
    """Whether the tensors of a state differ only along an axis that is a symbol of the input."""
    axis = taken.axis_of_growth(output)
    return axis is not None and taken.shape[axis] in {symbol.name for symbol in symbols}


def _check_program(program: Program, outputs: Sequence[TensorSpec], pairs: frozenset[tuple[int, int]]) -> None:
    where = f"metadata field 'programs': {program.function!r:.300}"
    for view in program.arena:
        try:
            check_tensor(view.spec)
        except Exception as error:  # see :func:`_check_tensors`
            raise ArtifactError(f"{where} works in {view!r:.300}: {error!s:.300}") from error
        if view.offset < 0:
            raise ArtifactError(f"{where} works in {view!r:.300}, which begins before its arena")
    if not 0 <= program.cost < math.inf:
        raise ArtifactError(f"{where} costs {program.cost} seconds")
    if program.arena_bytes > _MOST_ARENA:
        raise ArtifactError(f"{where} works in more bytes than any memory has")
    written = [output for output, _ in program.destinations]
    if len(set(written)) < len(written) or not set(written) <= set(range(len(outputs))):
        wrong = [i for i, count in Counter(written).items() if count > 1 or not 0 <= i < len(outputs)]
        raise ArtifactError(f"{where} writes outputs {wrong!r:.300} of {len(outputs)}, or twice")
    for output, shape in program.destinations:
        spec = outputs[output]
        if min(shape, default=0) < 0 or math.prod(shape) != math.prod(spec.sizes):
            wrong_shape = f"{shape!r:.300} to output {spec.name!r:.300}, which is {spec!s:.300}"
            raise ArtifactError(f"{where} writes {wrong_shape}")
    updated = [output for output, _ in program.updates]
    if len(set(updated)) < len(updated) or not set(program.updates) <= pairs or not set(updated) <= set(written):
        raise ArtifactError(f"{where} updates {program.updates!r:.300}, which are no states that it writes, each once")


def _check_expansion(compact: Compact, weight: TensorSpec) -> None:
    lines, (taps, *more) = compact.expansion.matrix, (*compact.shape, 0)
    square = len(compact.shape) >= 2 and more[0] == taps and min(compact.shape) >= 0
    if not square or not lines or any(len(line) != taps for line in lines):
        raise ArtifactError(f"metadata field 'compact': a matrix of {compact.shape[:2]!r:.300} columns is needed")
    matrix = np.array(lines)
    rows, columns = matrix.shape
    used = np.isfinite(matrix).all() and matrix.any(axis=1).all()
    if not used or columns < 1 or rows < columns or rows**2 > _MOST_EXPANSION * columns**2:
        wrong = f"a matrix of {matrix.shape} expands no weight"
        raise ArtifactError(f"metadata field 'compact', weight {compact.weight}: {wrong}")
    if math.prod(weight.sizes) != compact.count:
        raise ArtifactError(f"metadata field 'compact': it expands to more or fewer values than {weight!s:.300}")
