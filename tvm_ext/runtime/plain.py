"""Dataclasses as plain values of JSON, and back: the fields of one are a list in their order, checked by their types.

TensorSpec("x", (1, 3), "float32")   ->   ["x", [1, 3], "float32"]   ->   TensorSpec("x", (1, 3), "float32")
"""

import contextlib
import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..core.errors import ArtifactError, TvmExtError

T = TypeVar("T")
#: Floats that JSON has no numbers for, as they are written.
_NO_NUMBERS = ("inf", "-inf", "nan")


def row(value: Any) -> Any:
    """Plain values: a dataclass as the list of its fields, or as its one field; a sequence as a list.

    A field of `Mapping[str, Any]` has plain values, and is itself.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds, plain = _fields(type(value)), Mapping[str, Any]
        values = [getattr(value, name) if kind == plain else row(getattr(value, name)) for name, kind in kinds.items()]
        return values[0] if len(values) == 1 else values
    if isinstance(value, Mapping):
        return {key: row(item) for key, item in value.items()}
    return [row(item) for item in value] if isinstance(value, tuple | list) else value


def read(kind: type[T], value: Any) -> T:
    """The inverse of :func:`row`; the fields of a dataclass may also stand by name, defaults left out and others added.

    Args:
        kind: the type that is wanted: a dataclass, a tuple, a mapping, a union of these, or one of JSON's own.
        value: plain values of JSON, from anywhere.

    Raises:
        TypeError, ValueError, OverflowError: it is none of that type; says what is needed.
    """
    return _read(kind, value)


@contextlib.contextmanager
def reading(key: str) -> Iterator[None]:
    """What is raised by values of another kind, within it, is an ArtifactError.

    Args:
        key: of the report that they come from.

    Raises:
        ArtifactError: the report of an artifact is damaged there.
    """
    try:
        yield
    except TvmExtError:
        raise
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        missing = f"{error.args[0]!r:.300} is missing" if isinstance(error, KeyError) else f"{error!s:.300}"
        raise ArtifactError(f"damaged: report[{key!r}]: {missing}", fix="compile the model again") from error


def _read(kind: Any, value: Any) -> Any:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (value is None and type(None) in parts):
        return value
    if _is_record(kind):
        return _read_fields(kind, value)
    if origin in (typing.Union, types.UnionType):
        return read(next((part for part in parts if _fits(part, value)), parts[0]), value)
    if origin is tuple and isinstance(value, list | tuple):
        each = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(each) == len(value):
            return tuple(map(read, each, value))
    elif origin in (Mapping, dict) and isinstance(value, Mapping):
        return {read(parts[0], key): read(parts[1], item) for key, item in value.items()}
    elif kind is float and (type(value) is int or value in _NO_NUMBERS):
        return float(value)
    elif not parts and _fits(kind, value):  # TVM's strings become Python's
        return value if type(value) is kind else kind(value)
    raise TypeError(f"{value!r:.300}: {_name(kind)} is needed")


def _fits(kind: Any, value: Any) -> bool:
    return isinstance(value, typing.get_origin(kind) or kind) and (type(value) is not bool or kind is bool)


def _read_fields(kind: Any, value: Any) -> Any:
    names = _fields(kind)
    if len(names) == 1 and not isinstance(value, Mapping):
        return kind(*(read(wanted, value) for wanted in names.values()))
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == len(names):
        value = dict(zip(names, value, strict=True))
    if isinstance(value, Mapping):
        if missing := _needed(kind) - value.keys():
            raise TypeError(f"{', '.join(sorted(missing))}: missing")
        return kind(**{name: _read_field(name, wanted, value[name]) for name, wanted in names.items() if name in value})
    raise TypeError(f"{value!r:.300}: {_name(kind)} is needed")


def _read_field(name: str, kind: Any, value: Any) -> Any:
    try:
        return read(kind, value)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from error


def _is_record(kind: Any) -> bool:
    """Whether it is a dataclass, or a named tuple."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_field_defaults")


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """Field -> its type."""
    hints = typing.get_type_hints(kind)
    names = getattr(kind, "_fields", None) or [field.name for field in dataclasses.fields(kind)]
    return {name: hints[name] for name in names}


@functools.cache
def _needed(kind: Any) -> frozenset[str]:
    """Fields without a default."""
    if not dataclasses.is_dataclass(kind):
        return frozenset(kind._fields).difference(kind._field_defaults)
    none = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return frozenset(field.name for field in fields if field.default is none and field.default_factory is none)


def _name(kind: Any) -> str:
    """What a type is, for a message."""
    if _is_record(kind):
        return f"[{', '.join(_fields(kind))}]"
    words = {tuple: "a list", dict: "an object", Mapping: "an object"}
    return words.get(typing.get_origin(kind)) or str(getattr(kind, "__name__", kind))
