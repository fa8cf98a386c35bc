"""How far outputs move when a matrix that is inverted moves by roundings: what two correct inverses may differ by."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.oracles.float64 import float64_outputs

#: A condition number from which on no digit of an inverse in float32 is right.
_SINGULAR = 2.0**22
_VAST = 1e200
#: Matrices beside the one that is inverted, and how much of their distance is allowed.
_NEIGHBOURS, _SHARE = 4, 8.0


def inverse(noise: float = 0.0, seed: int = 0) -> type:
    """The operator `Inverse` of onnxruntime for `onnx.reference`, by numpy.

    Of a singular matrix it is NaN, or with noise a vast number, of which a comparison makes true or false by the seed.

    Args:
        noise: of each element, as a part of the largest one.
    """
    from onnx.reference.op_run import OpRun

    def run(self: Any, x: Any) -> Any:
        wide = x.astype(np.float64)
        largest = np.abs(wide).max((-2, -1), keepdims=True, initial=0.0)
        moved = wide + noise * largest * np.random.default_rng(seed).uniform(-1, 1, x.shape)
        if not x.size:
            return (x,)
        regular = (np.linalg.cond(wide) < _SINGULAR)[..., None, None]
        singular = _VAST * (-1) ** seed if noise else np.nan
        inverted = np.linalg.inv(np.where(regular, moved, np.eye(x.shape[-1])))
        return (np.where(regular, inverted, singular).astype(x.dtype),)

    return type("Inverse", (OpRun,), {"op_domain": "com.microsoft", "_run": run})


def moves(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Of each output the allowance of each element; infinite where it depends on a matrix that is singular."""
    noises = (0.0, *[2.0**-22] * _NEIGHBOURS)
    runs = [float64_outputs(model, feeds, [inverse(noise, seed)]).values() for seed, noise in enumerate(noises)]
    allowances = []
    for exact, *others in zip(*([np.asarray(x, np.float64) for x in run] for run in runs), strict=True):
        distance = np.max([np.abs(x - exact) for x in others], axis=0)
        allowances.append(_SHARE * np.where(np.isnan(distance), np.inf, distance))
    return allowances
