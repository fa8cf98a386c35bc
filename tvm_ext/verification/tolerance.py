"""How far two correct computations of one value may differ: by dtype, accumulated length, magnitudes and transform.

A sum of n products, in any order, has an error of at most gamma_n sum |x_i| |w_i|, gamma_n = n u / (1 - n u), with u
the unit roundoff of the type that sums (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM
2002, sections 3.1 and 3.5). Roundings are rarely all of one sign: with n replaced by lambda sqrt(n) it holds with a
probability that lambda sets (N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SISC
2019). The sum of magnitudes is at most |x| |w|, of the norms (Cauchy and Schwarz): see :mod:`.magnitude`.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from ..schedules.blocked.winograd import Transform

#: Unit roundoff: half the distance from 1 to the next number.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

#: What a type is summed in, here and in onnxruntime, where that is another one. Results are rounded once an operator.
ACCUMULATOR = {"float16": "float32", "bfloat16": "float32"}

#: lambda above. Both sides round; with the slack that is in |x| |w| nothing beyond this was seen, for values of one
#: sign neither, where the slack is least (tests/verification/test_tolerance.py).
CONFIDENCE = 4.0

#: Length that stands for one call of exp, tanh, erf and the like: they are polynomials of about this many steps.
FUNCTION_LENGTH = 16


@dataclass(frozen=True)
class Tolerance:
    """Largest difference of two correct results.

    Attributes:
        dtype: of the result.
        length: steps of all sums behind one another; 0 if only values are moved.
        magnitude: of what is summed.
        growth: factor of a recipe that transforms the sums, such as Winograd's.
        operators: how many results are rounded to `dtype`, where sums have a wider type.
        steps: of integers: how many apart they may be, where a real number was rounded to them.
        rounded: operands that are rounded to `narrow` before they are used, one behind the other.
        narrow: "bfloat16" or "float16".
    """

    dtype: str
    length: int = 0
    magnitude: float = 0.0
    growth: float = 1.0
    operators: int = 1
    steps: int = 0
    rounded: int = 0
    narrow: str = "bfloat16"

    @property
    def absolute(self) -> float:
        """The bound itself; 0 means that results must be equal.

        A product whose two operands are rounded is off by two roundings of it, 2 u |x_i| |w_i|, and so is their sum.
        """
        if self.dtype not in UNIT_ROUNDOFF:
            return float(self.steps)
        error = 2.0 * self.rounded * UNIT_ROUNDOFF[self.narrow]
        if self.length:
            wide = ACCUMULATOR.get(self.dtype, self.dtype)
            error += gamma(self.length, wide) * self.growth
            if wide != self.dtype:
                error += 2.0 * self.operators * UNIT_ROUNDOFF[self.dtype]
        return error * self.magnitude if error else 0.0

    def __str__(self) -> str:
        if self.dtype not in UNIT_ROUNDOFF:
            return f"{self.dtype}: equal" if not self.steps else f"{self.dtype}: {self.steps} apart"
        if not self.length and not self.rounded:
            return "equal: values are moved"
        more = f", growth {self.growth:.3g}" if self.growth != 1.0 else ""
        more += f", operands rounded to {self.narrow} {self.rounded} times" if self.rounded else ""
        return f"{self.dtype}: length {self.length}, magnitude {self.magnitude:.3g}{more}"


def gamma(length: int, dtype: str) -> float:
    """Difference of two sums, as a part of the sum of magnitudes: the smaller of both bounds; infinite beyond 1 / u."""
    u = UNIT_ROUNDOFF[dtype]
    sure = 2.0 * length * u / (1.0 - length * u) if length * u < 1.0 else math.inf
    return min(sure, CONFIDENCE * math.sqrt(length) * u)


@functools.cache
def winograd_growth(m: int, taps: int) -> float:
    """Factor on the error of a direct convolution for Winograd's F(m x m, r x r).

    An output is sum_k A_k (g . G_k) (d . B_k), so its rounding is relative to |A_k| |G_k| |B_k| |g| |d|: this is the
    root of the sum of their squares, largest over outputs, along one side of a tile. Along both it would be the square;
    but roundings of both sides do not meet, and measured errors are three to five times those of the direct sum. Bounds
    are in B. Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution for deep neural
    networks", ACM TOMS 2020.

    Args:
        m: outputs along one side of a tile.
        taps: of a phase of the weight, along one side.
    """
    t = Transform.of(m, taps)
    terms = np.abs(t.at) * np.linalg.norm(t.g, axis=1) * np.linalg.norm(t.bt, axis=1)
    return float(max(1.0, np.sqrt((terms**2).sum(axis=1)).max()))
