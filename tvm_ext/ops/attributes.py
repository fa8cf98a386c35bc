"""Attributes of operator calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.ir import Call


def names_of(attrs: Any) -> tuple[str, ...]:
    """The names of all attributes of a call's `attrs`, those of its parents among them; none of None."""
    if hasattr(attrs, "keys"):  # of an operator that is registered from Python
        return tuple(map(str, attrs.keys()))
    names: list[str] = []
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None) if attrs is not None else None
    while info is not None:
        names += [field.name for field in info.fields or ()]
        info = getattr(info, "parent_type_info", None)
    return tuple(names)


def attrs_of(call: Call, names: Iterable[str]) -> Mapping[str, Any]:
    """Attributes of an operator call by name, as Python values."""

    def plain(value: Any) -> Any:
        if isinstance(value, str) or value is None:
            return value
        if hasattr(value, "__iter__"):
            return tuple(plain(v) for v in value)
        return getattr(value, "value", value)

    return {name: plain(getattr(call.attrs, name)) for name in names}
