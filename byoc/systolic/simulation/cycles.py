"""How many cycles a systolic array takes for a GEMM: closed forms, without a simulation.

An array of R x C processing elements (PEs) works through C[m, n] = A[m, k] B[k, n] in *folds*, blocks of R x C of the
two dimensions (S_r, S_c) that lie in space; the third streams through in T steps (Samajdar et al., "A systematic
methodology for characterizing scalability of DNN accelerators using SCALE-Sim", ISPASS 2020):

======================  ===  ===  ===
dataflow                S_r  S_c  T
======================  ===  ===  ===
ws, weight stationary   k    n    m
os, output stationary   m    n    k
is, input stationary    k    m    n
======================  ===  ===  ===

A fold has these parts, of which the skew is what the wavefront needs to reach the far corner of the array::

    ws, is:   fill R | stream T + skew (R - 1) + (C - 1)               R = rows of stationary values shifted in
    os:                stream T + skew (R - 1) + (C - 1) | drain R     R = rows of results shifted out

Every fold occupies the whole array: a PE without work multiplies zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.errors import OptionError, check_choice, is_whole
from ..config import Dataflow


def _scalesim(dataflow: str, folds: int, steps: int, rows: int, cols: int) -> int:
    """SCALE-Sim 3.0.0's code. It leaves the drain of output stationary out, and prints one cycle less than this."""
    fill = 0 if dataflow == Dataflow.OS else rows
    return folds * (fill + steps + rows + cols - 2)


def _paper(dataflow: str, folds: int, steps: int, rows: int, cols: int) -> int:
    """The form of the paper, one for all three dataflows."""
    return folds * (2 * rows + cols + steps - 2)


def _physical(dataflow: str, folds: int, steps: int, rows: int, cols: int) -> int:
    """What registers need when a fold starts after the last one has left; :mod:`.stepper` counts the same."""
    skew = (rows - 1) + (cols - 1)
    fill, drain = (0, rows) if dataflow == Dataflow.OS else (rows, 0)
    return folds * (fill + steps + skew + drain)


def _overlapped(dataflow: str, folds: int, steps: int, rows: int, cols: int) -> int:
    """Fill (or drain) of one fold goes on behind the stream of its neighbour: max(T, R) a fold, the rest once.

    Each PE has a second register for it. A stream shorter than the R clocks of the fill or drain has to wait.
    """
    return (folds - 1) * max(steps, rows) + _physical(dataflow, 1, steps, rows, cols)


_MODELS: dict[str, Callable[[str, int, int, int, int], int]] = {
    "scalesim": _scalesim, "paper": _paper, "physical": _physical, "overlapped": _overlapped,
}  # fmt: skip


def spatial_and_temporal(dataflow: str, m: int, k: int, n: int) -> tuple[int, int, int]:
    """(S_r, S_c, T): what lies along the rows and the columns of the array, and what streams through.

    Raises:
        OptionError: no such dataflow, or "rs", which has no folds of a GEMM.
    """
    if dataflow == Dataflow.WS:
        return k, n, m
    if dataflow == Dataflow.OS:
        return m, n, k
    if dataflow == Dataflow.IS:
        return k, m, n
    raise Dataflow.unknown(dataflow)


def are_sizes(*values: Any) -> bool:
    """Whether all are whole numbers of 1 or more."""
    return all(is_whole(value) and value >= 1 for value in values)


def fold_count(dataflow: str, m: int, k: int, n: int, rows: int, cols: int) -> int:
    """Folds of a GEMM: blocks of rows x cols that its two spatial dimensions are cut into."""
    across, along, _ = spatial_and_temporal(dataflow, m, k, n)
    return -(-across // rows) * -(-along // cols)


def gemm_cycles(dataflow: str, m: int, k: int, n: int, rows: int, cols: int, model: str = "scalesim") -> int:
    """Cycles of C[m, n] = A[m, k] B[k, n] on an array of rows x cols PEs, operands and results always at hand.

    Args:
        dataflow: "ws", "os" or "is".
        model: "scalesim", SCALE-Sim's code (what it prints is one less); "paper", its published form; "physical", folds
            one after the other; "overlapped", the next fold's stationary values are shifted in behind the stream (for
            "os": results are shifted out behind the next stream).

    Raises:
        OptionError: an unknown dataflow or model, or a size below 1.
    """
    if not are_sizes(m, k, n, rows, cols):
        raise OptionError(f"m={m!r}, k={k!r}, n={n!r} on {rows!r} x {cols!r} PEs: each is a whole number of 1 or more")
    check_choice("model", model, _MODELS)
    across, along, steps = spatial_and_temporal(dataflow, m, k, n)
    return _MODELS[model](dataflow, -(-across // rows) * -(-along // cols), steps, rows, cols)


def mapping_efficiency(dataflow: str, m: int, k: int, n: int, rows: int, cols: int) -> float:
    """Share of the PEs that have work, mean over the folds; SCALE-Sim's "Mapping Efficiency" over 100."""
    across, along, _ = spatial_and_temporal(dataflow, m, k, n)
    return across * along / (fold_count(dataflow, m, k, n, rows, cols) * rows * cols)


def utilization(m: int, k: int, n: int, rows: int, cols: int, cycles: int) -> float:
    """Multiply-adds done over those that all PEs could do in so many cycles; SCALE-Sim's "Overall Util" over 100."""
    return m * k * n / (cycles * rows * cols)
