"""From a model to its programs: one, one for each size of a symbolic batch, or of any size and exact ones beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import ModelError, UnsupportedError
from ..core.instruments import Instruments
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.settings.shapes import check_names
from ..core.settings.states import state_pairs
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import Source
from ..frontend.reading.shapes import free_shapes, input_specs
from ..frontend.reading.signature import read_with
from ..runtime.spec import TensorSpec
from .lower import NO_INSTRUMENTS, SCHEDULED, Clock, Lowered, Programs, run_pipeline, start

if TYPE_CHECKING:
    from ..core.passes import Pass
    from ..frontend.importer import Imported

#: Sizes of the batch at which a model is read to prove that it works row by row: of sizes that no model states.
_PROBES = (37, 53, 61, 71, 83)


def lower(
    model: Any, options: CompileOptions, machine: Machine, clock: Clock | None = None,
    instruments: Instruments = NO_INSTRUMENTS, until: type[Pass] | str = SCHEDULED,
) -> Lowered:  # fmt: skip
    """Import a model of static shapes and run all passes: everything but the build.

    Args:
        until: the pass before which it ends, see :func:`run_pipeline`.
    """
    clock = clock or Clock()
    clock.lap("start")
    source, options = read_with(model, options)
    return run_pipeline(start(source, options, machine, clock, instruments), until)


def lower_all(
    model: Any, options: CompileOptions, machine: Machine, clock: Clock | None = None,
    instruments: Instruments = NO_INSTRUMENTS,
) -> Programs:  # fmt: skip
    """:func:`lower`, for each size of a symbolic batch if there is one; or a program of any size, and exact ones.

    Dimensions that neither the model nor `shapes` fixes are symbolic; where the model takes some sizes of them only
    (:func:`..frontend.checks.admitted.admitted`), they have these.

    Raises:
        UnsupportedError: dimensions are symbolic, and the model is no such program.
    """
    clock = clock or Clock()
    source, options = read_with(model, options)
    clock.lap("start")
    named = with_symbols(frozen_source(source, options.freeze), options)
    if not named.symbols:
        lowered = run_pipeline(start(source, options, machine, clock, instruments))
        return Programs(lowered.imported.inputs, lowered.imported.outputs, (lowered,))
    with source.sharing() as shared:
        try:
            return _programs_of(shared, options, named, machine, clock, instruments)
        except (ModelError, UnsupportedError):
            from ..frontend.checks.admitted import admitted

            fitting = admitted(source.proto, named)
            if fitting == named:
                raise
        return lower_all(shared, fitting, machine, clock, instruments)


def with_symbols(source: Source, options: CompileOptions) -> CompileOptions:
    """The options with a symbol for each dimension that neither a model nor its `shapes` fixes.

    Raises:
        OptionError: `dims` or `specialize` names no dimension of the model.
    """
    named = options.named(free_shapes(source.proto.graph, dict(options.shapes)))
    for option, sizes in (("dims", options.dims), ("specialize", options.specialize)):
        check_names(option, sizes, [symbol.name for symbol in named.symbols], source.name)
    return named


def _programs_of(
    source: Source, options: CompileOptions, named: CompileOptions, machine: Machine, clock: Clock,
    instruments: Instruments,
) -> Programs:  # fmt: skip
    """The programs of a model with symbolic dimensions, for which `named` has names; see :func:`lower_all`."""
    if named.by_rows:
        graph = frozen_source(source, options.freeze).proto.graph
        inputs = input_specs(graph, dict(named.shapes), source.name)
        try:
            outputs = _row_wise_outputs(source, named, machine, inputs)
        except UnsupportedError:
            pass  # it mixes rows
        else:
            pairs = state_pairs(options.state, inputs, outputs, source.name)  # the same for all sizes of the batch
            named = replace(named, state=tuple((outputs[output].name, inputs[taken].name) for output, taken in pairs))
            clock.lap("import")
            return Programs(inputs, outputs, lower_sizes(source, named, machine, clock, instruments))
    return _any_size(source, options, named, machine, clock, instruments)


def _any_size(
    source: Source, options: CompileOptions, named: CompileOptions, machine: Machine, clock: Clock,
    instruments: Instruments,
) -> Programs:  # fmt: skip
    """One program for all sizes of the dimensions that `named` has names for, and exact ones beside it.

    Raises:
        ModelError: there is none, and `options` left dimensions free.
        UnsupportedError: there is none.
    """
    from .exact import lower_with_exact

    try:
        return lower_with_exact(source, named, machine, clock, instruments)
    except UnsupportedError as error:
        try:
            input_specs(frozen_source(source, options.freeze).proto.graph, dict(options.shapes), source.name)
        except ModelError as free:
            raise ModelError(f"{free.message}; {error.message}", fix=free.fix) from error
        raise


def lower_sizes(
    source: Source, options: CompileOptions, machine: Machine, clock: Clock | None = None,
    instruments: Instruments = NO_INSTRUMENTS, until: type[Pass] | str = SCHEDULED,
) -> tuple[Lowered, ...]:  # fmt: skip
    """A model that was read, imported and lowered for each size of a symbolic batch, or once.

    Args:
        until: the pass before which it ends, see :func:`run_pipeline`.
    """
    from ..precision.sensitivity import measured

    clock, sensitivity = clock or Clock(), measured(source, options)
    begun = (
        start(source, options.bound(n) if n else options, machine, clock, instruments, n, sensitivity)
        for n in options.sizes or (0,)
    )
    return tuple(run_pipeline(program, until) for program in begun)


def _row_wise_outputs(
    source: Source, options: CompileOptions, machine: Machine, inputs: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...]:
    """Prove that the model works row by row; how its outputs depend on the size of the batch.

    Raises:
        UnsupportedError: it does not.
    """
    from tvm import relax

    from ..core.passes import CompileContext, run_passes
    from ..passes.simplification.eliminate_dead_code import EliminateDeadCode
    from ..passes.simplification.fold_constants import FoldConstants
    from ..passes.steps.row_wise import Pair, check_row_wise

    stated = {dim for spec in inputs for dim in spec.shape}
    first, second, *_ = (n for n in _PROBES if n not in stated)
    imported, modules = [], []
    for size in (first, second):
        program = _imported(source, options, size, _fix(inputs))
        ctx = CompileContext(machine, options.bound(size), program.provenance)
        if counted := [spec.name for spec in program.outputs if spec.count is not None]:
            wrong = f"{source.name}: values decide the size of output {counted[0]!r}, which are those of all rows"
            raise UnsupportedError(wrong, fix=_fix(inputs))
        folded = run_passes((EliminateDeadCode(), FoldConstants(), EliminateDeadCode()), program.mod, ctx)
        imported.append(program)
        modules.append(relax.transform.AnnotateTIROpPattern()(folded))
    _check_alike(imported[0], imported[1], source.name, _fix(inputs))
    pair = Pair((modules[0], modules[1]), (first, second))
    check_row_wise(pair, imported[0].provenance, source.name, _fix(inputs))
    outputs = tuple(_symbolic(a, b, first, str(options.symbol))
                    for a, b in zip(imported[0].outputs, imported[1].outputs, strict=True))  # fmt: skip
    for size in {1, *options.sizes}:  # one above all: a batch of one may be squeezed away
        other = _imported(source, options, size, _fix(inputs))
        _check_alike(imported[0], other, source.name, _fix(inputs))
        _check_outputs(other, size, outputs, source.name, _fix(inputs))
    return outputs


def _imported(source: Source, options: CompileOptions, size: int, fix: str) -> Imported:
    """The model for one size of the batch.

    Raises:
        UnsupportedError: it cannot be imported for this size.
    """
    from ..frontend.importer import import_model

    wrong = f"{source.name}: it cannot be compiled for every batch: with {options.symbol} = {size}, "
    try:
        imported = import_model(source, options.bound(size))
    except (ModelError, UnsupportedError) as error:
        raise UnsupportedError(wrong + error.message[:300], fix=fix) from error
    if imported.regions:
        node = imported.regions[0].nodes[0]
        wrong += f"node {node!r} runs in {imported.regions[0].backend}, of which nobody knows that it works row by row"
        raise UnsupportedError(wrong, fix=fix)
    return imported


def _check_alike(first: Imported, other: Imported, model: str, fix: str) -> None:
    """Outputs that are sequences have as many tensors for one size of the batch as for another.

    Raises:
        UnsupportedError: one has not.
    """
    if first.results != other.results:
        raise UnsupportedError(f"{model}: the batch decides how many tensors a sequence among its outputs has", fix=fix)


def _symbolic(first: TensorSpec, other: TensorSpec, size: int, symbol: str) -> TensorSpec:
    """The spec of an output from those for two sizes of the batch."""

    def dim(a: int, b: int) -> int | str:
        return a if a == b else symbol if a == size else f"{a // size}*{symbol}"

    return replace(first, shape=tuple(map(dim, first.sizes, other.sizes)))


def _check_outputs(imported: Imported, batch: int, outputs: Sequence[TensorSpec], model: str, fix: str) -> None:
    """For this size of the batch too, the outputs are rows of those of a larger one.

    Raises:
        UnsupportedError: they are not.
    """
    for output, wanted in zip(imported.outputs, outputs, strict=True):
        if output != wanted.at(batch):
            wrong = f"{model}: output {output.name!r} is {output} for a batch of {batch}, not {wanted}"
            raise UnsupportedError(wrong, fix=fix)


def _fix(inputs: Sequence[TensorSpec]) -> str:
    bound = ", ".join(f"{spec.name!r}: {spec.at(1).shape}" for spec in inputs if spec.batch_axis is not None)
    return f"compile it for one size of the batch: shapes={{{bound}}}"
