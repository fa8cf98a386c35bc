"""Weights of zoo models: seeded random numbers of a sane size, or a stored state dict. And the check of sizes."""

import math
import os
from collections.abc import Callable

import numpy as np

from ...core.errors import ModelError, check_whole
from ...runtime.table import few
from .state_dict import read_state_dict

Init = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def between(low: float, high: float) -> Init:
    """Uniform in a range, float32. Only additions and multiplications, so equal on every platform."""

    def init(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.random(shape, dtype=np.float32)
        values *= np.float32(high - low)
        values += np.float32(low)
        return values

    return init


def kaiming(fan_in: int, gain: float = 2.0) -> Init:
    """Uniform with variance gain / fan_in (He et al., ICCV 2015): keeps the size of activations through ReLUs."""
    bound = math.sqrt(3.0 * gain / fan_in)
    return between(-bound, bound)


class Parameters:
    """Hands a builder its weights by name, and notes what does not fit.

    Args:
        seed: of the random weights.
        stored: a `.safetensors` file to take them from instead; tensors named `*.num_batches_tracked` are ignored.
    """

    def __init__(self, seed: int = 0, stored: str | os.PathLike[str] | None = None) -> None:
        self._rng = np.random.default_rng(check_whole("seed", seed))
        self._file = None if stored is None else os.fspath(stored)
        self._stored = None if stored is None else read_state_dict(stored)
        self._missing: list[str] = []
        self._misfits: list[str] = []
        self._used: set[str] = set()

    def get(self, name: str, shape: tuple[int, ...], init: Init) -> np.ndarray:
        """A float32 weight; zeros if the stored one is missing or does not fit, which :meth:`finish` reports."""
        if self._stored is None:
            return init(self._rng, shape)
        self._used.add(name)
        stored = self._stored.get(name)
        if stored is None:
            self._missing.append(f"{name} {shape}")
        elif stored.shape != shape:
            self._misfits.append(f"{name} {stored.shape} instead of {shape}")
        elif stored.dtype.kind != "f":
            self._misfits.append(f"{name} of dtype {stored.dtype} instead of float32")
        else:
            return stored.astype(np.float32, copy=False)
        return np.zeros(shape, np.float32)

    def finish(self, model: str) -> None:
        """See that the stored weights were those of this model.

        Raises:
            ModelError: lists the tensors that are missing, of another shape or dtype, and left over.
        """
        extra = [n for n in self._stored or () if n not in self._used and not n.endswith(".num_batches_tracked")]
        groups = (("missing", self._missing), ("of another shape", self._misfits), ("not of this model", extra))
        wrong = [f"{len(names)} {what}: {few(names, 8)}" for what, names in groups if names]
        if wrong:
            fix = f"give the state dict of exactly this {model}, float tensors under torch's names"
            raise ModelError(f"weights {self._file!r} do not fit {model}: " + "; ".join(wrong), fix=fix)


def check_sizes(**sizes: int) -> list[int]:
    """The sizes, whole numbers of 1 or more, as those of Python.

    Raises:
        OptionError: names the one that is not.
    """
    return [check_whole(name, size, 1) for name, size in sizes.items()]
