"""Calls of a model whose outputs are inputs of the next call: a cache, the hidden state of a recurrent layer.

A step copies no state. It is read where it lies, and the new one is written into a second buffer, which the next step
reads. Where the program changes a part of a state (a row of a cache), there is one buffer, and that part is written.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError, RunError
from ..interface import counted_specs
from ..spec import Metadata, Specs, TensorSpec
from ..values import TENSOR, as_array, named, names_error, spread, values_of
from .arrays import Arrays, NamedArrays, Places, lend, zeros
from .resident import Resident

Fit = Callable[[Sequence[Any]], tuple[list[np.ndarray], int]]
"""A value an input -> the arrays, which fit, and the size of a symbolic batch or 0; InputError."""

Call = Callable[[Arrays, int, None, Places], Arrays]
"""Both, and memory for each output or None -> an array an output: that memory, where a kernel wrote it."""

#: Sets of types and shapes that are known.
_MOST_KEYS = 256


@dataclass
class _State:
    """A state and its memory.

    Attributes:
        output, taken: numbers of the output and of the input.
        spec: of the input.
        read: what the next step reads.
        write: what it writes; the same where the program updates the state in place.
    """

    output: int
    taken: int
    spec: TensorSpec
    read: np.ndarray
    write: np.ndarray

    def advance(self, written: np.ndarray) -> None:
        """The next step reads what this one wrote."""
        if written is not self.write:  # no kernel wrote it: a constant, an input, a dtype that numpy cannot lend
            np.copyto(self.write, written)
        self.read, self.write = self.write, self.read


@dataclass
class _Growing:
    """A state that a step makes longer along one axis, at the beginning of memory for the most that it can be.

    Attributes:
        output, taken, spec: see :class:`_State`.
        axis: along which it grows.
        least, most: sizes along it that the next step takes.
        write: the memory.
        size: of the state along the axis.
    """

    output: int
    taken: int
    spec: TensorSpec
    axis: int
    least: int
    most: int
    write: np.ndarray
    size: int = 0

    @property
    def read(self) -> np.ndarray:
        """The state as the next step takes it: a view of its memory, `size` long along the axis."""
        return self.write[self._part(0, self.size)]

    def _part(self, start: int, stop: int) -> tuple[slice, ...]:
        return (*[slice(None)] * self.axis, slice(start, stop))

    def advance(self, written: np.ndarray) -> None:
        """The next step reads what this one wrote."""
        self.size = written.shape[self.axis]
        if written.ctypes.data != self.write.ctypes.data:  # a program that makes a whole new value
            self.write[self._part(0, self.size)] = written

    def size_of(self, value: np.ndarray | int) -> int:
        """The size that a value has along the axis; the least one of a number.

        Raises:
            InputError: it is too short or too long.
        """
        size = value.shape[self.axis] if isinstance(value, np.ndarray) else self.least
        if not self.least <= size <= self.most:
            wrong = f"{size} along axis {self.axis}; {self.least} to {self.most} can be"
            raise InputError(f"state {self.spec.name!r} has a size of {wrong}")
        return size


class StateSession:
    """A sequence of calls of one model, with states of its own; :meth:`..model.CompiledModel.session` makes it.

    Sessions of one model share its weights and the memory that kernels work in; a session keeps its model alive. Steps
    of one session run one after the other, also if several threads call it. Used as a context, it is closed at the end.

    Args:
        fit, call: of the model: one checks its inputs, the other one runs it.
        metadata: of the model; `state` names its states, of which there is one at least.
        initial: name of a state, as an input -> its first value; the others are zeros. Without it every state is. Of a
            symbolic batch it gives the size.

    Raises:
        InputError: a name, shape or dtype does not fit, or the size of the batch is unknown.
    """

    def __init__(self, fit: Fit, call: Call, metadata: Metadata, initial: Mapping[str, Any] | None = None) -> None:
        self._fit, self._call, self._model = fit, call, metadata.model["name"]
        inputs = {spec.name: i for i, spec in enumerate(metadata.inputs)}
        outputs = {spec.name: i for i, spec in enumerate(metadata.outputs)}
        shown = {spec.name for spec in counted_specs(metadata.outputs)}
        taken = {into: output for output, into in metadata.state}
        self._inputs = {name: i for name, i in inputs.items() if name not in taken}
        self._outputs = {name: i for name, i in outputs.items() if name in shown and name not in taken.values()}
        self._outputs_in_all = len(outputs)
        self._spread = [value.name for value in metadata.arguments if value.kind != TENSOR]
        self._results = metadata.results
        self._lock, self._lost = threading.Lock(), ""
        values = _checked(initial, {name: metadata.inputs[inputs[name]] for name in taken})
        rows = 0 if metadata.symbols else _rows_of(values, [metadata.inputs[inputs[name]] for name in taken])
        in_place = _updated(metadata, rows)
        pairs = {name: (outputs[output], inputs[name]) for name, output in taken.items()}
        makers = {name: _kept(metadata, *pair, rows, pair in in_place) for name, pair in pairs.items()}
        arrays = zeros([(own.sizes, own.numpy_dtype) for _, specs in makers.values() for own in specs])
        for array in arrays:
            lend(array)
        memory = iter(arrays)
        self._states: dict[str, _State | _Growing] = {
            name: make(*itertools.islice(memory, len(specs))) for name, (make, specs) in makers.items()
        }
        #: Values of a step, but for what is fed; and, where all states are updated in place, memory of outputs.
        self._values: list[Any] = [None] * len(inputs)
        self._resident: Resident | None = None
        #: What is fed to such states: types and shapes -> the size of the batch.
        self._known: dict[tuple[Any, ...], int] = {}
        if all(isinstance(state, _State) and state.read is state.write for state in self._states.values()):
            places: list[np.ndarray | None] = [None] * len(outputs)
            for state in self._states.values():
                self._values[state.taken] = places[state.output] = state.write
            self._resident = Resident(places, [*self._inputs.values()])
        self._fill(values)

    def step(self, inputs: Mapping[str, Any] | None = None, /) -> dict[str, Any]:
        """Run once, on the states as they are, and keep the new ones.

        Args:
            inputs: name -> array, of the inputs that are no states; see :meth:`..model.CompiledModel.run`.

        Returns:
            Name -> array, of the outputs that are no states; they share memory with no state.

        Raises:
            InputError: a name, shape or dtype does not fit, or a length or position of a cache; the states are as they
                were.
            RunError: the program stopped; or it did so before in the midst of a state, or the session is closed.
        """
        feeds = dict(named(inputs, "inputs of a step"))
        feeds |= spread({name: feeds.pop(name) for name in self._spread if name in feeds})
        if feeds.keys() != self._inputs.keys():
            kept, taken = sorted(feeds.keys() & self._states.keys()), list(self._inputs)
            fix = f"the session keeps {kept}: give them to reset()" if kept else f"a step takes {taken}"
            raise names_error(list(feeds), taken, fix)
        with self._lock:
            values = self._values.copy()
            for name, number in self._inputs.items():
                values[number] = feeds[name]
            results = self._advance(values)
        outputs = {name: results[number] for name, number in self._outputs.items()}
        return self._nested(outputs) if self._results else outputs

    def _nested(self, outputs: NamedArrays) -> dict[str, Any]:
        """Outputs as callers have them; the tensors of one of which some are states by themselves."""
        whole = [value for value in self._results if all(name in outputs for name in value.tensors)]
        parts = {name for value in self._results if value not in whole for name in value.tensors}
        return values_of(outputs, whole) | {name: array for name, array in outputs.items() if name in parts}

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Name of each state, as an input -> a copy of its value.

        Raises:
            RunError: see :meth:`step`.
        """
        with self._lock:
            self._check()
            return {name: state.read.copy() for name, state in self._states.items()}

    def reset(self, initial: Mapping[str, Any] | None = None) -> None:
        """Start anew.

        Args:
            initial: name of a state -> its value; the others become zeros.

        Raises:
            InputError: a name, shape or dtype does not fit, or states of one symbol differ in size; the states are as
                they were.
            RunError: the session is closed.
        """
        values = _checked(initial, {name: state.spec for name, state in self._states.items()})
        with self._lock:
            if not self._states:
                self._check()
            self._fill(values)

    def close(self) -> None:
        """Give the memory of the states back; the session is of no use afterwards."""
        with self._lock:
            self._states, self._values, self._resident = {}, [None] * len(self._values), None
            self._lost = "the session is closed"

    def __enter__(self) -> StateSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {state.spec}" for name, state in self._states.items())
        return f"StateSession({self._model!r}: {states or 'closed'})"

    def _advance(self, values: list[Any]) -> Arrays:
        """Run with the states, which are others afterwards."""
        self._check()
        if (resident := self._resident) is not None:
            results = self._attempt(*self._fitting(values, resident), resident)
            for place, written in zip(resident, results, strict=True):
                if place is not None and written is not place:  # no kernel wrote it
                    np.copyto(place, written)
            return results
        into: list[np.ndarray | None] = [None] * self._outputs_in_all
        for state in self._states.values():
            values[state.taken], into[state.output] = state.read, state.write
        results = self._attempt(*self._fit(values), into)
        for state in self._states.values():
            state.advance(results[state.output])
        return results

    def _fitting(self, values: list[Any], into: Resident) -> tuple[Arrays, int]:
        """What the model's own check gives; values like those of an earlier step are not looked at again."""
        fed = [values[number] for number in into.fed]
        into.key = tuple((value.dtype, value.shape) if type(value) is np.ndarray else None for value in fed)
        if (rows := self._known.get(into.key)) is not None:
            return values, rows
        arrays, rows = self._fit(values)
        if len(self._known) >= _MOST_KEYS:
            self._known.clear()
            into.ready.clear()
        into.key = tuple((arrays[number].dtype, arrays[number].shape) for number in into.fed)
        self._known[into.key] = rows
        return arrays, rows

    def _attempt(self, arrays: Arrays, rows: int, into: Places) -> Arrays:
        """Run; where that stops in the midst of a state, the session is lost."""
        try:
            return self._call(arrays, rows, None, into)
        except InputError:  # of a kernel in front of which no state changes
            raise
        except BaseException:
            if any(isinstance(state, _State) and state.read is state.write for state in self._states.values()):
                self._lost = "a step stopped while it changed the states: call reset()"
            raise

    def _fill(self, values: NamedArrays) -> None:
        """Have the states be values, or zeros, as short as they can be, once all of them fit.

        Raises:
            InputError: one is too short or too long, or states of one symbol differ in size; nothing is changed.
        """
        sizes: dict[Any, int] = {}
        for name, state in self._states.items():
            if isinstance(state, _Growing):
                size, symbol = state.size_of(values.get(name, 0)), state.spec.shape[state.axis]
                if sizes.setdefault(symbol, size) != size:
                    wrong = f"{size} along axis {state.axis}, and another one a size of {sizes[symbol]}"
                    fix = "give values of one size to all of them"
                    raise InputError(f"state {name!r} has a size of {wrong}: both are {symbol}", fix=fix)
        self._lost = ""
        for name, state in self._states.items():
            if isinstance(state, _Growing):
                state.size = sizes[state.spec.shape[state.axis]]
            state.read[...] = values.get(name, 0)

    def _check(self) -> None:
        if self._lost:
            raise RunError(f"session of model {self._model!r}: {self._lost}")


def _updated(metadata: Metadata, rows: int) -> set[tuple[int, int]]:
    """The states, by output and input, that every program updates in place.

    A batch of so many rows that is composed of several calls has none: each call would update once more what does not
    depend on the rows, and one that is refused would leave the states changed by those before it.
    """
    batches = {program.batch for program in metadata.programs}
    symbolic = any(batches)
    if symbolic and rows not in batches:
        return set()
    common = set.intersection(*(set(program.updates) for program in metadata.programs))
    return {pair for pair in common if not symbolic or metadata.inputs[pair[1]].batch_axis is not None}


def _kept(
    metadata: Metadata, output: int, taken: int, rows: int, in_place: bool
) -> tuple[Callable[..., _State | _Growing], Specs]:
    """What makes a state of its memory, and what that is."""
    spec = metadata.inputs[taken]
    if not metadata.symbols or spec.batch_axis is None:
        spec = spec.at(rows)
        make = functools.partial(_State, output, taken, spec)
        return (lambda both: make(both, both), (spec,)) if in_place else (make, (spec, spec))
    axis = spec.batch_axis
    symbol = next(symbol for symbol in metadata.symbols if symbol.name == spec.shape[axis])
    whole = metadata.outputs[output].sized(metadata.programs[0].planned)
    return functools.partial(_Growing, output, taken, spec, axis, symbol.low, symbol.high), (whole,)


def _checked(initial: Mapping[str, Any] | None, specs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray]:
    """Values of states, as arrays that fit.

    Raises:
        InputError: one does not.
    """
    values = {}
    for name, value in named(initial, "a first state").items():
        if name not in specs:
            raise InputError(f"there is no state {name!r}", fix=f"states: {', '.join(specs)}")
        array, spec = as_array(value, name), specs[name]
        fits = all(isinstance(dim, str) or dim == size for dim, size in zip(spec.shape, array.shape, strict=False))
        if not fits or array.ndim != len(spec.shape) or array.dtype != spec.numpy_dtype:
            raise InputError(f"state {name!r} is {array.dtype}{list(array.shape)}; the model takes {spec}")
        values[name] = array
    return values


def _rows_of(values: NamedArrays, states: Specs) -> int:
    """The size of a symbolic batch, as the first values of the states say it; 0 where no state depends on it.

    Raises:
        InputError: they do not, or differ.
    """
    symbolic = [spec for spec in states if spec.batch_axis is not None]
    sizes = set(_sizes(values, symbolic))
    if not symbolic:
        return 0
    whole = sorted(size for size in sizes if size is not None)
    if len(sizes) == len(whole) == 1:
        return whole[0]
    names = ", ".join(f"{spec.name}: {spec}" for spec in symbolic)
    wrong = "the size of the batch is not known"
    if sizes:
        wrong = "the rows of a state are no whole batch" if None in sizes else f"the states say batches of {whole}"
    raise InputError(f"{wrong}; states are {names}", fix="give session(initial=) a value of so many rows")


def _sizes(values: NamedArrays, symbolic: Specs) -> Iterator[int | None]:
    """The size of the batch by each value; None where it is no whole number."""
    for spec in symbolic:
        if spec.name in values:
            axis = next(i for i, dim in enumerate(spec.shape) if isinstance(dim, str))
            each, size = spec.at(1).sizes[axis], values[spec.name].shape[axis]
            yield size // each if size % each == 0 else None
