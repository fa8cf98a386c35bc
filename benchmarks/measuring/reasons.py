"""Why a row misses its bar: what the profile of the program, taken in the same session, says of its
kernels.

    conv2d_winograd at 512x7x7 (3 launches): 31 % of the time at 22 % of the multiply-add peak, 88 %
    of the memory roof: memory-bound; ...

Kernels near no roof explain nothing: then the reason begins with "unexplained" and has the same
figures.
"""

import math
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm_ext.inspection.profile import Profile
from tvm_ext.inspection.profile.roofs import Roofs
from tvm_ext.inspection.profile.rows import Row
from tvm_ext.verification.arrays import save_npz

from benchmarks.measuring.processes import on_threads, probe

NOT_PROFILED = "not profiled in that run"
#: Part of a roof from which on a kernel is bound by it, and part of the run's time that bound
#: kernels explain.
NEAR, EXPLAINED = 0.8, 0.5
#: What goes on at a roof may be a little faster than the roof was measured to be. Bytes that are
#: faster came from caches, and operations that are faster are other ones than those that the roof
#: is of.
AT_MOST = 1.1
#: Recipes whose products are of 8 or 16 bits: the peak of float32 multiply-adds says nothing of
#: them.
NARROW = ("_dot", "_amx")
#: Kernels are told until they are this part of the run, no more than so many, and none below a part
#: of it; the time outside of kernels from a part on.
TOLD, MOST, LEAST, OUTSIDE = 0.75, 4, 0.05, 0.1


@dataclass(frozen=True)
class Share:
    """Launches of one recipe with results of one shape.

    Attributes:
        label: recipe, shape and number of launches.
        share: of the run's time, 0 to 1.
        roofs: roof -> part of it that is reached: "multiply-add peak" (of the instruction, where
            the profile knows it; else left out), and "memory roof" or, where bytes came faster than
            memory gives them, "L2 roof".
    """

    label: str
    share: float
    roofs: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The roof it is near; "" for none."""
        near = [roof for roof, part in self.roofs.items() if NEAR <= part <= AT_MOST]
        return max(near, key=lambda roof: self.roofs[roof], default="")

    def __str__(self) -> str:
        parts = [f"{100 * part:.0f} % of the {roof}" for roof, part in self.roofs.items()]
        rates = ", ".join(parts) or "rates not known"
        return f"{self.label}: {100 * self.share:.0f} % of the time at {rates}{_BOUND[self.bound]}"


#: The roof a kernel is near -> how its line ends.
_BOUND = {
    "multiply-add peak": ": compute-bound",
    "memory roof": ": memory-bound",
    "L2 roof": ": L2-bound",
    "": "",
}


def shares(profile: Profile, shapes: Sequence[Sequence[int]]) -> list[Share]:
    """Launches by recipe and shape of the result, those that take most of the time first.

    Args:
        profile: of the program.
        shapes: of the result of each launch.
    """
    groups: dict[str, list[Row]] = {}
    for row, shape in zip(profile.rows("launch"), shapes, strict=True):
        sizes = list(shape[1:] if len(shape) > 1 and shape[0] == 1 else shape)
        place = f" at {'x'.join(map(str, sizes))}" if sizes else ""
        groups.setdefault(f"{', '.join(row.recipes)}{place}", []).append(row)
    shares_of_groups = [_share(label, rows, profile.roofs) for label, rows in groups.items()]
    return sorted(shares_of_groups, key=lambda group: -group.share)


def _share(label: str, rows: Sequence[Row], roofs: Roofs) -> Share:
    count = f" ({len(rows)} launches)" if len(rows) > 1 else ""
    seconds, share = sum(row.median for row in rows), sum(row.share for row in rows)
    parts: dict[str, float] = {}
    peaks = [_of_peak(row, roofs) for row in rows]
    if seconds and None not in peaks:
        pairs = zip(rows, peaks, strict=True)
        parts["multiply-add peak"] = (
            sum(row.median * (peak or 0.0) for row, peak in pairs) / seconds
        )
    if seconds and all(row.work.bytes is not None for row in rows):
        rate = sum(row.work.bytes or 0 for row in rows) / seconds
        near = rate <= AT_MOST * roofs.bandwidth
        name, roof = (
            ("memory roof", roofs.bandwidth) if near else ("L2 roof", roofs.cache_bandwidth)
        )
        parts[name] = rate / roof
    return Share(f"{label}{count}", share, parts)


def _of_peak(row: Row, roofs: Roofs) -> float | None:
    """Of the peak of the kernel's instruction; None where the profile knows another one only."""
    if row.of_peak is None or row.executed is None or not row.median:
        return None
    of_float32 = row.executed / row.median / roofs.flops
    narrow = any(recipe.endswith(NARROW) for recipe in row.recipes)
    return None if narrow and math.isclose(of_float32, row.of_peak, rel_tol=1e-6) else row.of_peak


def reason_of(profile: Profile, shapes: Sequence[Sequence[int]]) -> str:
    """What takes the time, at which part of which roof; "unexplained: " before it where half of the
    time or more is spent near none.

    Args:
        profile: of the program.
        shapes: of the result of each launch.
    """
    groups, roofs = shares(profile, shapes), profile.roofs
    told, before = [], 0.0
    for at, group in enumerate(groups[:MOST]):
        if not at or (group.share >= LEAST and before < TOLD):
            told.append(str(group))
        before += group.share
    outside = profile.outside / profile.seconds
    if outside >= OUTSIDE:
        told.append(f"outside of kernels (call, VM): {100 * outside:.0f} % of the time")
    bound = sum(group.share for group in groups if group.bound)
    told.append(
        f"in all {100 * bound:.0f} % of {1e3 * profile.seconds:.3g} ms at {100 * NEAR:.0f} % of a "
        f"roof or more ({roofs.flops / 1e9:.0f} GFLOP/s, memory {roofs.bandwidth / 1e9:.1f} GB/s, "
        f"L2 {roofs.cache_bandwidth / 1e9:.0f} GB/s, measured with it)"
    )
    return ("" if bound >= EXPLAINED else "unexplained: ") + "; ".join(told)


def profiled(
    model: pathlib.Path, threads: int, options: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[Profile, list[list[int]]]:
    """The profile of a model, compiled without records and run in a process of its own, and the
    shape of each launch's result.

    Args:
        model: an ONNX file.
        threads: of the program.
        options: of the compile, as JSON has them.
        inputs: of the model; those that are missing are drawn by seed.

    Raises:
        RuntimeError: the process failed; says what it said.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-profile-") as folder:
        path = pathlib.Path(folder, "inputs.npz")
        save_npz(path, inputs)
        answer = probe("profile", model, threads, dict(options), path, env=on_threads(threads))
    return Profile.from_dict(answer["profile"]), answer["shapes"]


def explained(
    model: pathlib.Path, threads: int, options: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> str:
    """:func:`reason_of` a model's program; where it cannot be profiled, why. Arguments as for
    :func:`profiled`."""
    try:
        return reason_of(*profiled(model, threads, options, inputs))
    except RuntimeError as error:
        last = (str(error).strip().splitlines() or [""])[-1]
        return f"not profiled: {last}"
