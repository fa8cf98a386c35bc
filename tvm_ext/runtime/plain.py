"""Dataclasses as plain values of JSON, and back: the fields of one are a list in their order, checked by their types.

TensorSpec("x", (1, 3), "float32")   ->   ["x", [1, 3], "float32"]   ->   TensorSpec("x", (1, 3), "float32")
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any


def row(value: Any) -> Any:
    """Plain values: a dataclass as the list of its fields, or as its one field; a sequence as a list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = [row(getattr(value, name)) for name in _fields(type(value))]
        return values[0] if len(values) == 1 else values
    if isinstance(value, Mapping):
        return {key: row(item) for key, item in value.items()}
    return [row(item) for item in value] if isinstance(value, tuple | list) else value


def read(kind: Any, value: Any) -> Any:
    """The inverse of :func:`row`; the fields of a dataclass may also stand by their names, and defaults be left out.

    Args:
        kind: the type that is wanted: a dataclass, a tuple, a mapping, a union of these, or one of JSON's own.
        value: plain values of JSON, from anywhere.

    Raises:
        TypeError, ValueError, OverflowError: it is none of that type; says what is needed.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (value is None and type(None) in parts):
        return value
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value)
    if origin in (typing.Union, types.UnionType):
        return read(next((part for part in parts if _fits(part, value)), parts[0]), value)
    if origin is tuple and isinstance(value, list | tuple):
        each = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(each) == len(value):
            return tuple(map(read, each, value))
    elif origin is Mapping and isinstance(value, Mapping):
        return {read(parts[0], key): read(parts[1], item) for key, item in value.items()}
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise TypeError(f"{value!r:.300}: {_name(kind)} is needed")


def _fits(kind: Any, value: Any) -> bool:
    return isinstance(value, typing.get_origin(kind) or kind) and (type(value) is not bool or kind is bool)


def _read_fields(kind: Any, value: Any) -> Any:
    names = _fields(kind)
    if len(names) == 1 and not isinstance(value, Mapping):
        return kind(*(read(wanted, value) for wanted in names.values()))
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == len(names):
        return kind(*map(read, names.values(), value))
    if isinstance(value, Mapping) and _needed(kind) <= value.keys() <= names.keys():
        return kind(**{name: read(names[name], item) for name, item in value.items()})
    raise TypeError(f"{value!r:.300}: {_name(kind)} is needed")


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    """Field -> its type."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _needed(kind: Any) -> frozenset[str]:
    """Fields without a default."""
    none = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return frozenset(field.name for field in fields if field.default is none and field.default_factory is none)


def _name(kind: Any) -> str:
    """What a type is, for a message."""
    if dataclasses.is_dataclass(kind):
        return f"[{', '.join(_fields(kind))}]"  # type: ignore[arg-type]
    origin = typing.get_origin(kind)
    return "a list" if origin is tuple else "an object" if origin is Mapping else str(getattr(kind, "__name__", kind))
