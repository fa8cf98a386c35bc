"""Groups whose operands and results are stored in narrow floats or in 8 bits, and what they are worth in float64."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax

from tvm_ext.core.group import Group

from .kernels import make_group

BF16 = ml_dtypes.bfloat16
#: Narrow floats, and their unit roundoffs.
FLOATS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@dataclass(frozen=True)
class Storage:
    """One type that tensors are stored in.

    Attributes:
        dtype: one of :data:`FLOATS`, "int8" or "uint8".
        scale, zero: of 8 bits.
    """

    dtype: str
    scale: float = 0.03
    zero: int = 0

    def random(self, rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
        """Stored numbers; of 8 bits, all there are."""
        if self.dtype in FLOATS:
            return rng.standard_normal(shape).astype(self.dtype)
        limits = np.iinfo(self.dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(self.dtype)

    def value(self, array: np.ndarray) -> np.ndarray:
        """What stored numbers stand for, in float64."""
        if self.dtype in FLOATS:
            return array.astype("float64")
        return (array.astype("float64") - self.zero) * np.float64(np.float32(self.scale))

    def decode(self, x: Any) -> Any:
        if self.dtype in FLOATS:
            return relax.op.astype(x, "float32")
        return relax.op.dequantize(x, _constant(self.scale), relax.const(self.zero, self.dtype), axis=0)

    def encode(self, y: Any, step: float) -> Any:
        """The result, in 8 bits a multiple of `step`."""
        if self.dtype in FLOATS:
            return relax.op.astype(y, self.dtype)
        zero = relax.const(self.zero, self.dtype)
        return relax.op.quantize(y, _constant(step), zero, axis=0, out_dtype=self.dtype)

    def check(self, got: np.ndarray, exact: np.ndarray, step: float, error: Any) -> None:
        """Whether `got` is the stored number next to `exact`, which was computed up to `error`."""
        assert str(got.dtype) == self.dtype and got.shape == exact.shape
        if self.dtype in FLOATS:
            assert np.all(np.abs(got.astype("float64") - exact) <= FLOATS[self.dtype] * np.abs(exact) + error)
            return
        limits, scale = np.iinfo(self.dtype), np.float64(np.float32(step))
        wanted = np.clip(exact / scale + self.zero, limits.min, limits.max)
        assert np.all(np.abs(got - wanted) <= 0.5 + error / scale + 1e-5)


def _constant(value: float) -> Any:
    return relax.const(np.float32(value))


STORAGES = {s.dtype: s for s in (*map(Storage, FLOATS), Storage("int8", 0.03, -3), Storage("uint8", 0.025, 117))}


def stored_group(
    anchor: str, shapes: Sequence[Sequence[int]], op: Callable[..., Any], storage: Storage, step: float,
    constants: Sequence[int] = (),
) -> Group:  # fmt: skip
    """encode(relu(op(decode(x), decode(y), ...)))."""

    def body(*params: Any) -> Iterator[Any]:
        operands = list(params)
        for i, p in enumerate(params):
            operands[i] = yield storage.decode(p)
        value = yield op(*operands)
        value = yield relax.op.nn.relu(value)
        yield storage.encode(value, step)

    return make_group(anchor, shapes, body, constants, storage.dtype)
