"""Seeded inputs for a model: random arrays of the shapes and dtypes it takes."""

from collections.abc import Iterable, Mapping

import numpy as np

from ..runtime.spec import TensorSpec
from .errors import InputError, check_whole


def seeded_inputs(
    specs: Iterable[TensorSpec], seed: int = 0, batch: int = 1, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Random inputs, the same for the same seed, shapes and dtypes.

    Floats are standard normal. int8 and uint8, which hold quantized values and pixels, take their full range; wider
    integers, which are mostly indices, lie in 0..3 so that they are valid for any axis of four or more. Booleans are
    fair coins.

    Args:
        specs: name, shape and dtype of each.
        seed: seed of the generator.
        batch: size of the batch, where that is symbolic.
        sizes: size of each symbol, where there are several or bounded ones.

    Raises:
        OptionError: the seed is no whole number of 0 or more.
        InputError: no random values are defined of a dtype.
    """
    rng = np.random.default_rng(check_whole("seed", seed))
    at = (spec.sized(sizes) if sizes else spec.at(batch) for spec in specs)
    return {spec.name: _draw(rng, spec.sizes, spec.dtype, spec.name) for spec in at}


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, name: str) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype in ("int8", "uint8"):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if dtype.startswith(("int", "uint")):
        return rng.integers(0, 4, shape).astype(dtype)
    if dtype in ("float16", "float32", "float64"):
        return rng.standard_normal(shape).astype(dtype)
    if dtype == "bfloat16":
        import ml_dtypes

        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    raise InputError(f"input {name!r} has dtype {dtype}: no random values of it are defined", fix="give the inputs")
