"""Mutations of JSON: a value somewhere in it is another, missing, doubled, huge or deep."""

import copy
import json
from random import Random
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 1 << 31, 1 << 40, 1 << 62, 1 << 63, -(1 << 63), 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "N", "12*N", "../x", "float32", "object", "O", "V9999999", "(9,9)f4,i8",
    "S1000000000", "M8[s]", "\ud800", "\0", "a" * 10_000, [], {}, [[]], [None], [-1], [1 << 62, 1 << 62],
    {"a": {}}, [[[[]]]],
)  # fmt: skip


def mutated(text: str, rng: Random) -> str:
    """JSON of a value changed in one to three places; now and then text that is none."""
    value = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _changed(value, rng)
    built = json.dumps(value)
    how = rng.randrange(20)
    if how == 0:
        return built[: rng.randrange(len(built) + 1)]
    if how == 1:
        return built.replace(rng.choice('{["0'), rng.choice(("[", "{", "9" * 5000, "[" * 3000)), 1)
    return built


def _changed(value: Any, rng: Random) -> Any:
    places = _places(value)
    if not places:
        return rng.choice(_VALUES)
    holder, key = rng.choice(places)
    how = rng.randrange(8)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif how == 2 and isinstance(holder[key], int):
        holder[key] += rng.choice((-1, 1))
    elif how == 3:
        other, at = rng.choice(places)
        holder[key] = copy.deepcopy(other[at])
    else:
        holder[key] = copy.deepcopy(rng.choice(_VALUES))
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(object or list, key or index) of every value in it."""
    result: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            result.append((one, key))
            pending.append(one[key])
    return result
