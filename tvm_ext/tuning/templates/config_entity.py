"""One configuration as a template sees it, and as AutoTVM's logs have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionError
from ...core.recipe import Config
from .choices import Axis
from .entities import ENTITIES, Entity, InstantiationError, OtherOptionEntity

if TYPE_CHECKING:
    from .space import ConfigSpace


class ConfigEntity:
    """One configuration as a template sees it: `cfg["tile_x"].apply(sch, loop)`.

    Definitions are taken as made, so that a template runs alike while its space is collected and when it is applied.
    """

    def __init__(self, space: ConfigSpace, config: Mapping[str, Any]) -> None:
        self._space, self.config = space, config

    def __getitem__(self, name: str) -> Entity:
        choices = self._space.choices(name)
        return choices.entity(self.config[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._space)

    def _defined(self, name: str, *args: Any, **options: Any) -> list[Axis]:
        return self._space.choices(name).axes

    define_split = define_reorder = define_annotate = define_knob = _defined

    def axis(self, axis: Any) -> Any:
        """The axis; its extent is known already."""
        return axis

    reduce_axis = axis

    def multi_filter(self, filter: Callable[[ConfigEntity], object]) -> None:
        """Known already."""

    def add_flop(self, flop: float) -> None:
        """Counted already."""

    def raise_error(self, message: str) -> None:
        """Refuse the configuration.

        Raises:
            InstantiationError: always.
        """
        raise InstantiationError(message)


Row = tuple[str, str, Any]
"""A knob in a log of AutoTVM: name, kind, value."""


def to_entities(config: Mapping[str, Any], space: ConfigSpace | None = None) -> list[Row]:
    """A configuration as AutoTVM's logs have it.

    Args:
        space: tells the kinds; without it every knob is "ot".
    """
    kinds = space.kinds if space is not None else {}
    return [(name, kinds.get(name, "ot"), value) for name, value in config.items()]


def from_entities(rows: Iterable[Sequence[Any]]) -> Config:
    """The configuration of AutoTVM's rows `[name, kind, value]`; a kind that is not known is taken for "ot".

    Raises:
        OptionError: a row is no such list.
    """
    config: Config = {}
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) != 3 or not isinstance(row[0], str):
            raise OptionError(f"{row!r} is no knob of a log: [name, kind, value] is expected")
        name, kind, value = row
        entity = ENTITIES.get(str(kind), OtherOptionEntity)
        config[name] = list(value) if entity is not OtherOptionEntity and isinstance(value, list | tuple) else value
    return config
