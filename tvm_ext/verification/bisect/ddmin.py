"""Delta debugging: the smallest set of switches that makes an error go away, also where several have to be off.

The algorithm ddmin of A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 2002:
of one culprit it is a binary search; where two culprits stand in different halves, the complements of ever smaller
parts are tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimal_set(items: Sequence[T], helps: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """A set of items that helps, of which none can be left out (1-minimal).

    Args:
        items: all of which together help.
        helps: whether a set of them does; not called for all of them, and never for none.
    """
    smallest, parts = tuple(items), 2
    while len(smallest) > 1:
        pieces = _split(smallest, min(parts, len(smallest)))
        if (smaller := next((piece for piece in pieces if helps(piece)), None)) is not None:
            smallest, parts = smaller, 2
            continue
        rests = [tuple(item for item in smallest if item not in piece) for piece in pieces] if len(pieces) > 2 else []
        if (smaller := next((rest for rest in rests if helps(rest)), None)) is not None:
            smallest, parts = smaller, max(len(pieces) - 1, 2)
            continue
        if len(pieces) == len(smallest):
            break
        parts = 2 * len(pieces)
    return smallest


def _split(items: tuple[T, ...], parts: int) -> list[tuple[T, ...]]:
    """Parts of about one size, in order."""
    bounds = [len(items) * i // parts for i in range(parts + 1)]
    return [items[low:high] for low, high in itertools.pairwise(bounds)]
