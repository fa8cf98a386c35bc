"""One configuration as a template sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .choices import Axis
from .entities import Entity, InstantiationError

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
