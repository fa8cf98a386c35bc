"""Options of `compile`: one frozen object that checks itself when it is made."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import OptionError

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class CompileOptions:
    """How a model is compiled.

    Attributes:
        shapes: input name -> shape, for inputs whose dimensions the model leaves free.
        target: CPU to compile for; see :meth:`tvm_ext.core.Machine.detect`. None is this machine.
        threads: threads of the parallel kernels. None takes all cores this process may use.
        fusion: "default" groups each anchor operation with its epilogue; "none" leaves every operation alone.
        accuracy: "default" may use Winograd convolution: rounding stays within 1e-5 of an output's range, and a NaN or
            infinity among activations reaches every output of its tile. "exact" uses only kernels that sum products as
            the operation says.
        cache: whether to look in, and write to, the on-disk cache.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(default=())
    target: str | None = None
    threads: int | None = None
    fusion: str = "default"
    accuracy: str = "default"
    cache: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", _checked_shapes(self.shapes))
        if self.target is not None and not (isinstance(self.target, str) and self.target):
            raise OptionError(f"target={self.target!r}: a CPU name is needed, or None for this machine")
        if self.threads is not None and (
            isinstance(self.threads, bool) or not isinstance(self.threads, int) or not 1 <= self.threads <= 1024
        ):
            raise OptionError(f"threads={self.threads!r}: a whole number from 1 to 1024, or None for all cores")
        if self.fusion not in ("default", "none"):
            raise OptionError(f"fusion={self.fusion!r}: choose 'default' or 'none'")
        if self.accuracy not in ("default", "exact"):
            raise OptionError(f"accuracy={self.accuracy!r}: choose 'default' or 'exact'")
        if not isinstance(self.cache, bool):
            raise OptionError(f"cache={self.cache!r}: choose True or False")

    @classmethod
    def of(cls, **given: Any) -> CompileOptions:
        """Build from keywords; an unknown one is an error that suggests the nearest.

        Raises:
            OptionError: an unknown name or a bad value.
        """
        names = [f.name for f in fields(cls)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise OptionError(f"unknown compile option {name!r}", fix=f"{hint}options: {', '.join(names)}")
        return cls(**given)


def _checked_shapes(shapes: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    pairs = shapes.items() if isinstance(shapes, Mapping) else (shapes or ())
    checked = []
    for pair in pairs:
        try:
            name, shape = pair
            dims = tuple(int(d) for d in shape)
        except (TypeError, ValueError):
            dims, name = (-1,), pair
        if not isinstance(name, str) or any(d < 0 for d in dims):
            raise OptionError(
                f"shapes={shapes!r}: every entry is an input name and a tuple of whole numbers, 0 or more",
                fix="for example shapes={'input': (1, 3, 224, 224)}",
            )
        checked.append((name, dims))
    return tuple(sorted(checked))
