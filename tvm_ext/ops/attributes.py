"""Attributes of operator calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.ir import Call


def attrs_of(call: Call, names: Iterable[str]) -> Mapping[str, Any]:
    """Attributes of an operator call by name, as Python values."""

    def plain(value: Any) -> Any:
        if isinstance(value, str) or value is None:
            return value
        if hasattr(value, "__iter__"):
            return tuple(plain(v) for v in value)
        return getattr(value, "value", value)

    return {name: plain(getattr(call.attrs, name)) for name in names}
