"""Choices of one knob: a sequence that is listed when it is first looked at, equal choices once."""

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import OptionError
from .entities import ENTITIES, Entity

Filter = Callable[[Any], object]
"""Entity -> whether it is a choice."""


@dataclass(frozen=True)
class Axis:
    """An axis as a space knows it.

    Attributes:
        name: of the knob and the place in it ("tile_x.1"), or "" for one of a given extent.
        extent: iterations; -1 if they depend on the configuration.
    """

    name: str = ""
    extent: int = -1


class Choices(Sequence[Any]):
    """The choices of a knob as plain JSON values.

    Args:
        name: of the knob, for errors.
        kind: AutoTVM's kind, of :data:`ENTITIES`.
        generate: makes an iterator over the choices; called again rather than kept.
        keep: filter over entities.
        normalize: brings a value to the form in which it is listed.
        axes: what the knob yields.

    Raises:
        OptionError: no choice is left.
    """

    def __init__(
        self, name: str, kind: str, generate: Callable[[], Iterable[Any]], *, keep: Filter | None = None,
        normalize: Callable[[Any], Any] = lambda value: value, axes: Sequence[Axis] = (),
    ) -> None:  # fmt: skip
        self.name, self.kind, self.axes = name, kind, list(axes)
        self._generate, self._keep, self._normalize = generate, keep, normalize
        if next(self._kept(), None) is None:
            why = "its filter takes none of the choices" if keep is not None else "it has no choices"
            raise OptionError(f"knob {name!r}: {why}", fix="give it a wider filter, or another policy")

    def _kept(self) -> Iterator[tuple[Any]]:
        for value in self._generate():
            if self._keep is None or self._keep(self.entity(value)):
                yield (value,)  # a choice may be None

    @functools.cached_property
    def _listed(self) -> list[Any]:
        return list({_identity(value): value for (value,) in self._kept()}.values())

    @functools.cached_property
    def _places(self) -> dict[Any, int]:
        return {_identity(value): place for place, value in enumerate(self._listed)}

    def entity(self, value: Any) -> Entity:
        """A value as templates and filters see it."""
        return ENTITIES[self.kind](_fresh(value))

    def first(self) -> Any:
        """The first choice, without listing the others."""
        return _fresh(next(self._kept())[0])

    def __len__(self) -> int:
        return len(self._listed)

    def __getitem__(self, place: Any) -> Any:
        chosen = self._listed[place]
        return [_fresh(value) for value in chosen] if isinstance(place, slice) else _fresh(chosen)

    def __contains__(self, value: object) -> bool:
        return _identity(self._normalize(value)) in self._places

    def index(self, value: Any, *bounds: int) -> int:
        """Place of a value.

        Raises:
            OptionError: it is no choice; names the nearest ones.
        """
        place = self._places.get(_identity(self._normalize(value)))
        if place is None:
            shown = [str(choice) for choice in itertools.islice(self._listed, 8)]
            more = f", ... ({len(self)} choices)" if len(self) > len(shown) else ""
            raise OptionError(f"knob {self.name!r}: {value!r} is not among its choices: {', '.join(shown)}{more}")
        return place

    def __repr__(self) -> str:
        return f"Choices({self.name!r}, {self.kind!r})"


def _identity(value: Any) -> Any:
    """What makes two choices equal: type and value, lists by their items (1, True and 1.0 are three choices)."""
    if isinstance(value, list | tuple):
        return tuple(_identity(item) for item in value)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else (type(value), value)


def _fresh(value: Any) -> Any:
    """A copy that the caller may change."""
    if isinstance(value, list | tuple):
        return [_fresh(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


def plain(name: str, value: Any) -> Any:
    """A candidate as a JSON value (numpy's numbers become Python's).

    Raises:
        OptionError: it is none.
    """
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise OptionError(
            f"knob {name!r}: {value!r} is no JSON value", fix="name the choice by a number or a string"
        ) from None
    return value
