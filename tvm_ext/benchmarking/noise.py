"""Is the machine quiet enough? A fixed piece of work, timed between the rounds on every core that is measured."""

import hashlib
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

#: above these the machine is called too noisy to tell
RATIO_SPREAD = 0.10
CALIBRATION_SPREAD = 0.10
_WORK = bytes(4 << 20)


def calibrate(threads: int, repeats: int = 5) -> float:
    """Seconds of a fixed piece of work (SHA-256 of 4 MiB) on `threads` threads at once: the least of some repeats.

    hashlib releases the GIL, so a core that another process keeps busy shows. Call it while no contender runs.
    """
    with ThreadPoolExecutor(threads) as pool:
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool.map(lambda _: hashlib.sha256(_WORK).digest(), range(threads)))
            best = min(best, time.perf_counter() - start)
    return best


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile (linear interpolation)."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def spread(values: Sequence[float]) -> float:
    """Interquartile range over median; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    low, middle, high = quartiles(values)
    return (high - low) / middle if middle else 0.0


def load_warning(cores: int) -> str:
    """What to say if other processes are at work before we start; empty if none are."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return ""
    if load > 0.5 * cores:
        return f"the machine was busy before the start: load average {load:.1f} on {cores} cores"
    return ""


def noise_warnings(ratios: dict[str, list[float]], calibration: Sequence[float]) -> list[str]:
    """What to say about the rounds: which ratios scatter, and whether the machine's own speed did."""
    warnings = [
        f"too noisy to tell: the ratio to {name} scatters by {100 * spread(values):.0f} % between rounds"
        for name, values in ratios.items()
        if spread(values) > RATIO_SPREAD
    ]
    if spread(calibration) > CALIBRATION_SPREAD:
        warnings.append(
            f"the machine's own speed changed by {100 * spread(calibration):.0f} % between rounds: "
            "other work is running on it, or its clock is throttled"
        )
    return warnings
