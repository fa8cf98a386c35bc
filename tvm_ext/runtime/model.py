"""A compiled model: runs numpy arrays from any thread, exports itself to one file, and loads from it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import ArtifactError, InputError, OptionError, RunError, ToolError, TvmExtError, failure, naming
from . import control_flow
from .artifact import read_artifact, write_artifact
from .cpu import OTHER_MACHINE_FIX, why_not_here
from .drivers import connect
from .files import path_of, scratch_folder
from .interface import counted_arrays, counted_specs
from .library import load_library, write_library
from .linker import find_linker
from .memory.arrays import Arrays, Places
from .memory.kernel_memory import Inspector, hook_of
from .memory.state_session import StateSession
from .offloading.report import OffloadReport
from .pool.threads import available_cores, dispatcher
from .pool.waiting import ThreadsWait
from .sizes.symbols import Symbol, dimensions_of, named_sizes
from .spec import Body, Dim, Metadata, TensorSpec
from .values import (
    Value,
    as_array,
    described,
    in_native_order,
    names_error,
    plain_values,
    shape_error,
    tensors_of,
    values_of,
)
from .vm import Caller, CallerPool, Hook, Observer, Weights

_Expected = tuple[str, tuple[Dim, ...], np.dtype[Any]]
"""Name, shape and dtype of an input, as `run` compares them."""
#: Sets of input shapes that are remembered, of a model of symbolic sizes.
_MOST_SHAPES = 256


class CompiledModel:
    """A model compiled for a CPU; :func:`tvm_ext.compile` and :func:`load` make them.

    Any number of threads may call :meth:`run` at once.

    Args:
        module: TVM module of the Relax VM executable; its `main(*inputs, *weights)` returns a tensor or a tuple.
        weights: arrays in the order of `metadata.weights`. 64-byte aligned, writable ones are used where they are.
        metadata: names, shapes and dtypes, machine, versions, report.
        make_library: writes the executable as a shared library to a path.
        compact: makes the stored forms of weights, by their numbers, for all of `metadata.compact`.
        needs_linker: whether `make_library` links, so that :meth:`export` can say first that there is no linker.
    """

    def __init__(
        self, module: Any, weights: Arrays, metadata: Metadata, make_library: Callable[[Path], None],
        compact: Callable[[], Mapping[int, np.ndarray]] = dict, *, needs_linker: bool = True,
    ) -> None:  # fmt: skip
        self.metadata = metadata
        self._arrays = tuple(weights)
        self._make_library, self._needs_linker, self._compact = make_library, needs_linker, compact
        inputs = metadata.inputs
        held = Weights(self._arrays)
        functions = {body.name: _function_of(module, metadata, body, held) for body in metadata.bodies}
        own = {control_flow.NAME: functools.partial(control_flow.driver, functions=functions)}
        connect(metadata.offloads, [held.bytes_of(offload.weight) for offload in metadata.offloads], self, own)
        self._callers = CallerPool(_caller_maker(module, metadata, held), max(4, available_cores()))
        self._expected = tuple((spec.name, spec.shape, spec.numpy_dtype) for spec in inputs)
        self._dimensions = dimensions_of(inputs, metadata.symbols)
        self._expected_at: dict[tuple[tuple[int, ...], ...], tuple[int, tuple[_Expected, ...]]] = {}
        self._input_names = tuple(spec.name for spec in inputs)
        self._shown = counted_specs(metadata.outputs)
        self._counted = len(self._shown) < len(metadata.outputs)
        self._output_names = tuple(spec.name for spec in self._shown)
        self._on_pool = metadata.parallel and metadata.threads > 1

    # -------------------------------------------------------------------------------------------- what it is
    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each input; elements of sequences are inputs by themselves: "seq[0]"."""
        return self.metadata.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each output, as :attr:`inputs`; a size that values decide has a name."""
        named = {name for value in self.metadata.results for name in value.tensors}
        return tuple(spec for spec in self._shown if spec.name in named) if self.metadata.results else self._shown

    @property
    def arguments(self) -> tuple[Value, ...]:
        """The inputs as :meth:`run` takes them: which of them are sequences, and which optionals are absent."""
        return self.metadata.arguments or plain_values(self.inputs)

    @property
    def results(self) -> tuple[Value, ...]:
        """The outputs as :meth:`run` returns them."""
        return self.metadata.results or plain_values(self.outputs)

    def tensors_of(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a call by the names that :attr:`inputs` has: elements of sequences by themselves.

        Raises:
            InputError: a name, or the length of a sequence, does not fit.
        """
        return tensors_of(inputs, self.metadata.arguments) if self.metadata.arguments else inputs

    def nested(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a call by the names that :attr:`arguments` has: sequences as lists, as onnxruntime takes them.

        Raises:
            InputError: see :meth:`tensors_of`.
        """
        arguments = self.metadata.arguments
        return values_of(tensors_of(inputs, arguments), arguments) if arguments else inputs

    @property
    def state(self) -> dict[str, str]:
        """Name of each output that is an input of the next call -> name of that input; see :meth:`session`."""
        return dict(self.metadata.state)

    @property
    def batches(self) -> tuple[int, ...]:
        """Sizes of a symbolic batch that it has programs for, ascending; none if no dimension is symbolic."""
        return tuple(program.batch for program in self.metadata.programs if program.batch)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Dimensions of inputs whose sizes are known at run time, with their bounds; none if all are numbers."""
        return self.metadata.symbols

    @property
    def threads(self) -> int:
        """Threads its kernels use at most; compiled in."""
        return self.metadata.threads

    @property
    def report(self) -> Mapping[str, Any]:
        """What the compiler did and why: plain JSON values."""
        return self.metadata.report

    def offload_report(self) -> OffloadReport:
        """Where each ONNX node runs and why, and what is known of each offloaded region.

        Raises:
            OptionError: the model was compiled without `offload`.
        """
        return OffloadReport.of(self.report, str(self.metadata.model["name"]))

    def offload_programs(self) -> dict[str, bytes]:
        """Region -> its program, as its back end made it."""
        return {offload.region: self._arrays[offload.weight].tobytes() for offload in self.metadata.offloads}

    def __repr__(self) -> str:
        sides = (self.arguments, self.inputs), (self.results, self.outputs)
        inputs, outputs = (", ".join(f"{name}: {text}" for name, text in described(*side)) for side in sides)
        machine = f"{self.metadata.machine['isa']}, {self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"CompiledModel({self.metadata.model['name']!r}: ({inputs}) -> ({outputs}); {machine})"

    def __reduce__(self) -> tuple[Callable[[bytes], CompiledModel], tuple[bytes]]:
        """Pickled, and copied by `copy`, as the bytes of its artifact: weights and machine code are in it.

        Raises:
            ToolError: see :meth:`export`.
        """
        with scratch_folder() as folder:
            path = folder / "model.so"
            self.export(path)
            return _from_artifact, (path.read_bytes(),)

    # -------------------------------------------------------------------------------------------- running
    def run(self, inputs: Mapping[str, Any] | Any = None, /, *positional: Any) -> dict[str, Any]:
        """Run once.

        Args:
            inputs: ONNX input name -> array, a list of arrays for a sequence, None for an optional that is absent (or
                nothing); or the first input's, with the others following it. Shapes and dtypes must be those of
                :attr:`inputs`; a symbolic batch may have any size. Memory that is contiguous, writable and starts at a
                multiple of 64 bytes (such as any output of a model) is read in place, other is copied.
            *positional: the further inputs, in order.

        Returns:
            ONNX output name -> array, list of arrays or None, whichever way the inputs were given. Arrays are writable,
            and share memory with no input, no weight and no other run.

        Raises:
            InputError: a name, shape or dtype does not fit; the message says what would.
            ArtifactError: the model was compiled for a machine that this one cannot stand for.
            RunError: the program stopped, for instance for lack of memory.
        """
        return self._run(self._in_order(inputs, positional))

    __call__ = run

    def session(self, initial: Mapping[str, Any] | None = None) -> StateSession:
        """Calls whose states (:attr:`state`) stay between them; any number of sessions share the weights.

        Args:
            initial: input name -> first value of a state; the others are zeros. Of a symbolic batch it gives the size.

        Raises:
            OptionError: the model was compiled without states.
            InputError: a name, shape or dtype does not fit.
        """
        if not self.metadata.state:
            fix = "compile it with state={'an output': 'an input'}, or state='auto'"
            raise OptionError(f"model {self.metadata.model['name']!r} has no states", fix=fix)
        return StateSession(self._fitting, self._call, self.metadata, initial)

    def run_observed(self, inputs: Mapping[str, Any], observe: Observer) -> dict[str, Any]:
        """:meth:`run`, with a look at every kernel: what profilers and tuners are made of.

        Args:
            inputs: ONNX input name -> array.
            observe: called with a kernel's name and True before it runs, with False after it; each call costs
                a few microseconds.
        """
        return self._run(self._in_order(inputs, ()), lambda name, before, _: observe(name, before))

    def run_inspected(self, inputs: Mapping[str, Any], inspect: Inspector) -> dict[str, Any]:
        """:meth:`run`, with a look into the memory of every kernel: what comparisons layer by layer are made of.

        Args:
            inputs: ONNX input name -> array.
            inspect: called with a kernel's name, True before it runs and False after it, and the arrays it takes:
                inputs and weights, then its results. They are the memory itself, valid during the call, and what
                is written to a result is what later kernels read. Weights are not to be written.
        """
        return self._run(self._in_order(inputs, ()), hook_of(inspect))

    def _run(self, values: Sequence[Any], hook: Hook | None = None) -> dict[str, Any]:
        results = dict(zip(self._output_names, self._call(*self._fitting(values), hook), strict=True))
        return values_of(results, self.metadata.results) if self.metadata.results else results

    def _fitting(self, values: Sequence[Any]) -> tuple[list[np.ndarray], int]:
        """Inputs as arrays, and the size of the batch."""
        rows, expected = self._expected_of(values) if self._dimensions else (0, self._expected)
        return _checked(values, expected), rows

    def _call(
        self, arrays: Arrays, rows: int, hook: Hook | None = None, into: Places | None = None
    ) -> list[np.ndarray]:
        try:
            if self._on_pool:
                results: list[np.ndarray] = dispatcher.call(self._callers.call, arrays, rows, hook, into)
            else:
                results = self._callers.call(arrays, rows, hook, into)
        except TvmExtError:
            raise
        except Exception as error:
            if hook is not None:  # it may be the caller's own
                raise
            raise failure(RunError, f"model {self.metadata.model['name']!r} stopped while it ran", error) from error
        return counted_arrays(results, self.metadata.outputs) if self._counted else results

    def _in_order(self, inputs: Any, positional: tuple[Any, ...]) -> Sequence[Any]:
        arguments = self.metadata.arguments
        if arguments and not positional and isinstance(inputs, Mapping):
            inputs = tensors_of(inputs, arguments)
        if isinstance(inputs, dict) or isinstance(inputs, Mapping):  # noqa: SIM101  (asking for dict alone is fast)
            if not positional:
                try:
                    if len(inputs) == len(self._input_names):
                        return [inputs[name] for name in self._input_names]
                except KeyError:
                    pass
                raise names_error(list(inputs), list(self._input_names))
            raise InputError(f"inputs by name and {len(positional)} by position", fix="give all of them one way")
        values = () if inputs is None and not positional else (inputs, *positional)
        if len(values) != len(arguments or self._expected):
            wanted = ", ".join(f"{name}: {text}" for name, text in described(self.arguments, self.inputs)) or "none"
            raise InputError(f"{len(values)} inputs were given, the model takes {len(self.arguments)}: {wanted}")
        if arguments:
            return self._in_order({value.name: x for value, x in zip(arguments, values, strict=True)}, ())
        return values

    def _expected_of(self, values: Sequence[Any]) -> tuple[int, tuple[_Expected, ...]]:
        """The size of a symbolic batch, 0 if there is none, and what all inputs must be for the sizes they have."""
        shapes = tuple(
            value.shape if type(value) is np.ndarray else as_array(value, name).shape
            for value, name in zip(values, self._input_names, strict=True)
        )
        expected = self._expected_at.get(shapes)
        if expected is None:
            sizes = named_sizes(self.inputs, shapes, self._dimensions)
            rows = 0 if self.metadata.symbols else sizes[self._dimensions[0].name]
            specs = (spec.sized(sizes) for spec in self.inputs)
            expected = rows, tuple((spec.name, spec.shape, spec.numpy_dtype) for spec in specs)
            if len(self._expected_at) >= _MOST_SHAPES:
                self._expected_at.clear()
            self._expected_at[shapes] = expected
        return expected

    # -------------------------------------------------------------------------------------------- exporting
    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, which :func:`load` reads in a process without a compiler.

        Args:
            path: the file to write; it appears whole or not at all.

        Raises:
            ToolError: no linker is there (said before anything else is done), linking failed, or the file cannot
                be written.
        """
        if self._needs_linker:
            find_linker()
        target = Path(path_of(path, ToolError, "the path to export to"))
        if os.path.isdir(target) or not os.path.isdir(target.parent):
            wrong = "is a folder" if os.path.isdir(target) else f"there is no folder {str(target.parent)!r}"
            raise ToolError(f"cannot export to {str(path)!r}: {wrong}", fix="give the path of a file to write")
        with scratch_folder() as folder:
            library = folder / "library.so"
            what, fix = f"cannot export to {str(path)!r}: making the library failed", "set CXX to a working compiler"
            with naming(ToolError, lambda: what, fix):
                self._make_library(library)
            if not library.is_file():
                raise ToolError(f"cannot export to {str(path)!r}: the linker {find_linker()} wrote no file")
            metadata = replace(self.metadata, expanded=False)
            write_artifact(target, library, self._arrays, metadata, self._compact())


def load(path: str | os.PathLike[str], *, threads_wait: ThreadsWait = None) -> CompiledModel:
    """Load a file that `CompiledModel.export` wrote. Needs no compiler and no libtvm_compiler.

    Args:
        path: the file.
        threads_wait: how worker threads wait: "spin", "sleep", seconds, or None for the time that waking is worth; one
            setting for the process, fixed before its first run.

    Raises:
        OptionError: no such `threads_wait`; or this process has another one, or has run a model before.
        ArtifactError: the file is missing, foreign, cut off, altered, of another version, or needs instructions
            that this CPU lacks. It is checked before any of its code is loaded.
    """
    artifact = read_artifact(path)
    dispatcher.choose_wait(threads_wait)
    module = load_library(artifact.library, os.fspath(path))
    library = artifact.library
    compact = artifact.compact
    return CompiledModel(
        module, artifact.weights, artifact.metadata, lambda file: write_library(library, file), lambda: compact,
        needs_linker=False,
    )  # fmt: skip


def _from_artifact(data: bytes) -> CompiledModel:
    """The model of an artifact's bytes.

    Raises:
        ArtifactError: see :func:`load`.
    """
    with scratch_folder(len(data)) as folder:
        path = folder / "model.so"
        path.write_bytes(data)
        return load(path)


def _caller_maker(module: Any, metadata: Metadata, weights: Weights) -> Callable[[], Caller]:
    """Makes callers; holds what they share, and not the model, so that a dropped model goes at once."""

    def make() -> Caller:
        if reason := why_not_here(metadata.machine):  # a program cross-compiled in this process
            raise ArtifactError(f"model {metadata.model['name']!r} cannot run here: {reason}", fix=OTHER_MACHINE_FIX)
        return Caller(module, metadata, weights)

    return make


def _function_of(module: Any, metadata: Metadata, body: Body, weights: Weights) -> control_flow.Function:
    """The body of a loop, with callers of its own: it is called while a program runs, which has one of the model's."""
    described = replace(metadata, inputs=body.inputs, outputs=body.outputs, programs=(body.program,))
    callers = CallerPool(_caller_maker(module, described, weights), max(4, available_cores()))
    expected = [(spec.name, spec.shape, spec.numpy_dtype) for spec in body.inputs]
    return lambda arrays: callers.call(_checked(arrays, expected))


def _checked(values: Sequence[Any], expected: Sequence[_Expected]) -> list[np.ndarray]:
    arrays = []
    for value, (name, shape, dtype) in zip(values, expected, strict=False):
        array = value if type(value) is np.ndarray else as_array(value, name)
        if array.dtype is not dtype and array.dtype != dtype:
            array = in_native_order(value, array, name, dtype)
        if array.shape != shape:
            raise shape_error(array, name, shape)
        arrays.append(array)
    return arrays
