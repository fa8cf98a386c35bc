"""Simulated annealing over a space, many chains at a time: each step mutates every chain and scores them together.

S. Kirkpatrick, C. Gelatt, M. Vecchi, "Optimization by Simulated Annealing", Science 220, 1983.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..templates.space import ConfigSpace

Score = Callable[[Sequence[int]], np.ndarray]
"""Indices of points -> their scores, higher is better."""

#: Steps without a better chain after which it ends.
_PATIENCE = 8


def anneal(
    space: ConfigSpace, score: Score, starts: Sequence[int], rng: np.random.Generator, steps: int = 24
) -> dict[int, float]:
    """Walk from each start towards higher scores.

    Args:
        space: whose points are mutated.
        score: of many points; called once a step.
        starts: legal points; each is a chain.
        steps: at most so many; the temperature falls to zero over them, from the spread of the starts' scores.

    Returns:
        Every point that was visited, with its score.
    """
    chains, current = [space.at(index) for index in starts], score(starts)
    visited = dict(zip(starts, current.tolist(), strict=True))
    spread, best, idle = float(current.std()) or 1.0, float(current.max()), 0
    for step in range(steps):
        moved = [space.mutate(config, rng) for config in chains]
        indices = [space.index(config) for config in moved]
        scores = score(indices)
        visited.update(zip(indices, scores.tolist(), strict=True))
        temperature = 0.5 * spread * (1 - step / steps)
        accepted = scores - current > temperature * np.log(rng.random(len(chains)))
        chains = [new if yes else old for new, old, yes in zip(moved, chains, accepted.tolist(), strict=True)]
        current = np.where(accepted, scores, current)
        idle = 0 if float(scores.max()) > best else idle + 1
        best = max(best, float(scores.max()))
        if idle == _PATIENCE:
            break
    return visited
