"""Inputs that `compile(freeze=...)` gives fixed values: checked, hashable, plain enough for a cache key."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import OptionError

if TYPE_CHECKING:
    import numpy as np

_FIX = "for example freeze={'axes': np.array([0, 2]), 'k': 3}"


@dataclass(frozen=True)
class FrozenInput:
    """An input and the value it has from now on.

    Attributes:
        name: of the input.
        dtype, shape: of the value.
        data: its bytes, row by row, in base64.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: str

    @classmethod
    def of(cls, name: str, value: np.ndarray) -> FrozenInput:
        """The frozen value of an array: its bytes, dtype and shape."""
        import numpy as np

        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return cls(name, str(value.dtype), tuple(value.shape), data)

    def array(self) -> np.ndarray:
        """The value; it cannot be written."""
        import ml_dtypes  # noqa: F401  (it gives numpy the names of the small floats)
        import numpy as np

        flat = np.frombuffer(base64.b64decode(self.data), np.dtype(self.dtype))
        return flat[: math.prod(self.shape)].reshape(self.shape)


def frozen_inputs(inputs: Any) -> tuple[FrozenInput, ...]:
    """The option `freeze` in its checked form, by name.

    Args:
        inputs: input name -> array, or whatever `numpy.asarray` makes one of; or what this function returned.

    Raises:
        OptionError: no mapping from names to arrays of numbers.
    """
    if isinstance(inputs, tuple) and all(isinstance(item, FrozenInput) for item in inputs):
        return inputs
    if not isinstance(inputs, Mapping):
        raise OptionError(f"freeze={inputs!r}: input names and their values are needed", fix=_FIX)
    return tuple(sorted(_checked(inputs.items()), key=lambda item: item.name))


def _checked(pairs: Iterable[tuple[Any, Any]]) -> Iterable[FrozenInput]:
    import numpy as np

    for name, value in pairs:
        try:
            array = np.asarray(value)
        except ValueError:  # rows of unequal length
            array = np.asarray(None)
        if not isinstance(name, str) or array.dtype.hasobject or array.dtype.kind in "USMmc":
            wrong = f"freeze: {name!r}: {value!r}: an input name and an array of numbers are needed"
            raise OptionError(wrong, fix=_FIX)
        yield FrozenInput.of(name, array)
