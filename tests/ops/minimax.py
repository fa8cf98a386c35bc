"""Minimax polynomials by Remez exchange: where the coefficients of `vector_math` come from.

Run as a program, it prints them: `python -m tests.ops.minimax`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

POINTS = 20_001
_ERF, _ERFC = np.vectorize(math.erf), np.vectorize(math.erfc)


def exchange(target: np.ndarray, basis: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Coefficients c of least max |weight (target - basis c)|, over the rows."""
    count = basis.shape[1]
    scaled, wanted = basis * weight[:, None], target * weight
    scale = np.abs(scaled).max(0)
    signs = (-1.0) ** np.arange(count + 1)
    chebyshev = (1 - np.cos(math.pi * (np.arange(count + 1) + 0.5) / (count + 1))) / 2
    picked = np.round(chebyshev * (len(target) - 1)).astype(int)
    best, least = np.zeros(count), math.inf
    for _ in range(60):
        system = np.column_stack([scaled[picked] / scale, signs])
        solution = np.linalg.solve(system, wanted[picked])[:count] / scale
        error = wanted - scaled @ solution
        if np.abs(error).max() < least:
            best, least = solution, np.abs(error).max()
        extrema = _extrema(error, count + 1)
        if len(extrema) <= count or np.array_equal(extrema, picked):
            break
        picked = extrema
    return best


def _extrema(error: np.ndarray, count: int) -> np.ndarray:
    """The largest `count` extrema of alternating sign."""
    runs = np.split(np.arange(len(error)), np.flatnonzero(np.diff(np.sign(error))) + 1)
    peaks = [int(run[np.argmax(np.abs(error[run]))]) for run in runs]
    while len(peaks) > count:
        sizes = np.abs(error[peaks])
        least = int(np.argmin(sizes))
        if len(peaks) == count + 1 or least in (0, len(peaks) - 1):
            peaks.pop(0 if sizes[0] < sizes[-1] else -1)
        else:  # two neighbours go, so that the signs still alternate
            del peaks[least]
            peaks.pop(least - 1 if sizes[least - 1] < sizes[least + 1] else least)
    return np.array(peaks)


@dataclass(frozen=True)
class Fit:
    """A function that a polynomial is fitted to, at points x, in the error that counts at each."""

    x: np.ndarray
    target: np.ndarray
    degree: int
    weight: np.ndarray

    def rounded(self) -> list[float]:
        """float32 coefficients, each rounded while the later ones are fitted anew."""
        left, steps = self.target.copy(), []
        for power in range(self.degree + 1):
            basis = np.stack([self.x**p for p in range(power, self.degree + 1)], 1)
            steps.append(float(np.float32(exchange(left, basis, self.weight)[0])))
            left = left - steps[-1] * self.x**power
        return steps

    def error(self, coefficients: Sequence[float]) -> float:
        """The largest weighted error of a polynomial."""
        values = sum((c * self.x**power for power, c in enumerate(coefficients)), start=np.zeros_like(self.x))
        return float(np.abs((self.target - values) * self.weight).max())


def _expm1() -> Fit:
    limit = 1.001 * math.log(2) / 2
    x = np.linspace(-limit, limit, POINTS)
    small = np.abs(x) < 1e-3
    safe = np.where(small, 1.0, x)
    target = np.where(small, 0.5 + x / 6 + x**2 / 24 + x**3 / 120, (np.expm1(safe) - safe) / safe**2)
    weight = np.where(x == 0, 0.0, x**2 / np.where(x == 0, 1.0, np.abs(np.expm1(x))))
    return Fit(x, target, 4, weight)


def _erf_near() -> Fit:
    square = np.linspace(1e-6, 0.875**2, POINTS)
    x = np.sqrt(square)
    return Fit(square, _ERF(x) / x - 1, 5, x / _ERF(x))


def _erf_far() -> Fit:
    x = np.linspace(0.875, 4.0, POINTS)
    return Fit(x, -np.log(_ERFC(x)) / x, 6, _ERFC(x) * x / _ERF(x))


def _log1p() -> Fit:
    f = np.linspace(math.sqrt(0.5) - 1 - 1e-4, math.sqrt(2) - 1 + 1e-4, POINTS)
    small = np.abs(f) < 2e-2
    safe = np.where(small, 1.0, f)
    series = sum((-1) ** k * f**k / (k + 3) for k in range(9))
    target = np.where(small, series, (np.log1p(safe) - safe + safe**2 / 2) / safe**3)
    weight = np.where(f == 0, 0.0, np.abs(f) ** 3 / np.where(f == 0, 1.0, np.abs(np.log1p(f))))
    return Fit(f, target, 7, weight)


def _log1p_unit() -> Fit:
    u = np.linspace(0.0, 1.0, POINTS)
    small = u < 2e-2
    safe = np.where(small, 1.0, u)
    series = sum((-1) ** (k + 1) * u**k / (k + 2) for k in range(9))
    target = np.where(small, series, (np.log1p(safe) - safe) / safe**2)
    weight = np.where(u == 0, 0.0, u**2 / np.where(u == 0, 1.0, np.log1p(u)))
    return Fit(u, target, 8, weight)


#: Name in `vector_math` -> what it is fitted to, in the relative error of the function.
POLYNOMIALS: dict[str, Callable[[], Fit]] = {
    "EXPM1": _expm1, "ERF_NEAR": _erf_near, "ERF_FAR": _erf_far, "LOG1P": _log1p,
    "LOG1P_UNIT": _log1p_unit,
}  # fmt: skip

if __name__ == "__main__":
    for name, fit_of in POLYNOMIALS.items():
        fit = fit_of()
        coefficients, error = fit.rounded(), fit.error(fit.rounded())
        print(name, [float(np.float32(c)) for c in coefficients], f"relative error 2^{math.log2(error):.1f}")
