"""What a caller passes in, as arrays that fit the model, and the shapes that decide which program runs them."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError
from ...core.options import Shapes
from ...core.settings.shapes import NO_TENSOR
from ...runtime.values import as_array, dtype_error, element_of, in_native_order, names_error, shape_error
from .ort_values import array_of, is_ort_value


@dataclass(frozen=True)
class Input:
    """An input of a model.

    Attributes:
        name: of the input.
        dims: a number, a name, or None, for each dimension; None if not even their number is known.
        dtype: of its elements; None if it holds no numbers, and what is passed in is not looked at.
        kind: its type as onnxruntime writes it.
    """

    name: str
    dims: tuple[int | str | None, ...] | None
    dtype: np.dtype[Any] | None
    kind: str = ""

    @property
    def optional(self) -> bool:
        """Whether it may be absent."""
        return self.kind.startswith("optional(")

    @property
    def sequence(self) -> bool:
        """Whether it is a list of arrays."""
        return "seq(" in self.kind

    @property
    def free(self) -> bool:
        """Whether a dimension is free."""
        return self.dims is None or not all(isinstance(dim, int) for dim in self.dims)


@dataclass(frozen=True)
class Fed:
    """What was passed in.

    Attributes:
        arrays: input name -> array, list of arrays, or None; of inputs that hold no numbers, the value as it was.
        shapes: of the inputs with free dimensions; elements of sequences by themselves.
        never: why no program can be compiled for them; "" if one may be.
        contradiction: which name of a dimension stands for two sizes; "" if none does.
    """

    arrays: dict[str, Any]
    shapes: Shapes
    never: str
    contradiction: str


class Feeds:
    """Checks what is passed in for a model.

    Args:
        inputs: of the model, in order.
        overridable: initializers that a caller may replace.
    """

    def __init__(self, inputs: Sequence[Input], overridable: Sequence[Input] = ()) -> None:
        self.inputs = tuple(inputs)
        self._overridable = {spec.name: spec for spec in overridable}
        self._known = {spec.name: spec for spec in (*inputs, *overridable)}
        self._never = next((f"input {spec.name!r} is {spec.kind}" for spec in inputs if spec.dtype is None), "")
        self._shared = _shared_names(self.inputs)
        self._optional = [spec.name for spec in inputs if spec.optional]
        self._needed = [spec.name for spec in inputs if not spec.optional]

    def read(self, feed: Mapping[str, Any]) -> Fed:
        """Arrays and shapes of a call.

        Raises:
            InputError: a name, dtype, rank or dimension does not fit.
        """
        checked_mapping(feed)
        if any(name not in feed for name in self._needed) or any(name not in self._known for name in feed):
            raise names_error(list(feed), [n for n in self._known if n in self._needed or n in feed])
        arrays = {name: _fitted(value, self._known[name]) for name, value in feed.items()}
        arrays.update((name, None) for name in self._optional if name not in feed)
        replaced = [name for name in arrays if name in self._overridable]
        sized = [spec.name for spec in self.inputs if spec.free and spec.dtype is not None] + replaced
        contradiction = self._contradiction(arrays)
        never = self._never or contradiction
        if replaced:
            never = f"initializer {replaced[0]!r} is replaced; programs have its value as a constant"
        shapes = tuple(entry for name in sized for entry in _shapes(name, arrays[name]))
        return Fed(arrays, shapes, never, contradiction)

    def shapes_of(self, shapes: Mapping[str, Sequence[int]]) -> Shapes:
        """The shapes of the inputs with free dimensions, as :meth:`read` gives them for arrays of these.

        Args:
            shapes: input name -> shape, for these inputs at least; of a sequence a list, None of what is absent.

        Raises:
            InputError: a name is missing or unknown, or a shape does not fit.
        """
        free = [spec for spec in self.inputs if spec.free]
        needed = [spec.name for spec in free if not spec.optional]
        if not isinstance(shapes, Mapping) or any(name not in shapes for name in needed):
            raise names_error(list(shapes) if isinstance(shapes, Mapping) else [], needed)
        arrays = dict.fromkeys(self._optional)
        arrays |= {spec.name: _of_shape(spec, shapes[spec.name]) for spec in self.inputs if spec.name in shapes}
        if unknown := [name for name in shapes if name not in arrays]:
            raise names_error([*arrays, *unknown], list(arrays))
        return tuple(entry for spec in free for entry in _shapes(spec.name, arrays[spec.name]))

    def _contradiction(self, arrays: Mapping[str, Any]) -> str:
        """Which name of a dimension stands for two sizes; "" if none does."""
        for symbol, places in self._shared.items():
            (first, axis), *others = places
            size = arrays[first].shape[axis]
            for name, at in others:
                if (other := arrays[name].shape[at]) != size:
                    return f"{symbol} is {size} in input {first!r} (dimension {axis}) and {other} in {name!r} ({at})"
        return ""


def checked_mapping(feed: Any) -> None:
    """Raises InputError for inputs that are not passed by name."""
    if not isinstance(feed, Mapping):
        raise InputError(f"input_feed is {type(feed).__name__}", fix="pass a dict: input name -> array")


def converted(value: Any, name: str, dtype: np.dtype[Any]) -> np.ndarray:
    """The array of what onnxruntime takes besides arrays: one of its own values, or a list of numbers.

    Args:
        value: an array is returned as it is.
        name: of the input.
        dtype: of its elements: a list becomes an array of it.

    Raises:
        InputError: None, no array, or a list that this dtype cannot hold.
    """
    if type(value) is np.ndarray:
        return value
    if is_ort_value(value):
        return np.asarray(array_of(value, f"input {name!r}"))
    array = as_array(value, name)
    if not isinstance(value, list | tuple) or array.dtype == dtype:
        return array
    if array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            cast = array.astype(dtype)
        if dtype.kind not in "iub" or np.array_equal(cast.astype(array.dtype), array):
            return cast
    raise dtype_error(value, array, name, dtype)


def _of_shape(expected: Input, shape: Any) -> Any:
    """An array of this shape, without memory of its own; a list of them, or None, as the input is."""
    if shape is None and expected.optional:
        return None
    try:
        shapes = [tuple(map(operator.index, each)) for each in (shape if expected.sequence else [shape])]
        arrays = [np.broadcast_to(np.zeros((), expected.dtype), each) for each in shapes]
    except (TypeError, ValueError) as error:
        what = "no list of shapes" if expected.sequence else "no shape"
        raise InputError(f"input {expected.name!r}: {shape!r} is {what}", fix="whole numbers, 0 or more") from error
    return _fitted(arrays if expected.sequence else arrays[0], expected)


def _shapes(name: str, value: Any) -> Shapes:
    """The shape of an input; of a sequence those of its elements."""
    if value is None:
        return ((name, NO_TENSOR),)
    if isinstance(value, list):
        elements = tuple((element_of(name, place), array.shape) for place, array in enumerate(value))
        return elements or ((name, ()),)
    return ((name, value.shape),)


def _fitted(value: Any, expected: Input) -> Any:
    """The value as an array of the dtype, rank and fixed dimensions that are expected; a list of them, or None."""
    dtype, dims = expected.dtype, expected.dims
    if dtype is None or (value is None and expected.optional):
        return value
    if expected.sequence:
        if not isinstance(value, list | tuple):
            wrong = f"input {expected.name!r} is {type(value).__name__}, not {expected.kind}"
            raise InputError(wrong, fix="pass a list of arrays")
        names = [element_of(expected.name, place) for place in range(len(value))]
        return [in_native_order(x, converted(x, n, dtype), n, dtype) for n, x in zip(names, value, strict=True)]
    array = in_native_order(value, converted(value, expected.name, dtype), expected.name, dtype)
    if dims is None:
        return array
    sizes = array.shape
    if len(dims) != len(sizes) or any(isinstance(d, int) and d != n for d, n in zip(dims, sizes, strict=True)):
        raise shape_error(array, expected.name, dims)
    return array


def _shared_names(inputs: Sequence[Input]) -> dict[str, list[tuple[str, int]]]:
    """Name of a free dimension -> (input, axis) of each that has it, for names of several."""
    places: dict[str, list[tuple[str, int]]] = {}
    for spec in inputs:
        for axis, dim in enumerate(spec.dims or () if spec.dtype is not None else ()):
            if isinstance(dim, str):
                places.setdefault(dim, []).append((spec.name, axis))
    return {name: axes for name, axes in places.items() if len(axes) > 1}
