"""What policies make of a knob: the choices of a split, an order, or annotations.

    split of 128 over 3   ->  [128, 1, 1], [64, 2, 1], [32, 4, 1], ..., [1, 1, 128]
    order of 3 axes       ->  [0, 1, 2], [0, 2, 1], ...
    annotate 2 axes       ->  ["none", "none"], ["none", "unroll"], ...

Policies and the order of choices are those of AutoTVM (`tvm.autotvm.task.space`, TVM 0.6 to 0.18); what it has for
GPUs is left out.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...core.errors import OptionError
from .choices import Axis, Choices, Filter, plain
from .entities import ANNOTATIONS

SPLIT_POLICIES = ("factors", "power2", "verbose", "candidate")
REORDER_POLICIES = ("all", "identity", "interval_all", "interleave", "candidate")


# ------------------------------------------------------------------------------------------------ splits
def split_choices(
    name: str, extent: int, policy: str, num_outputs: int, max_factor: int | None, no_tail: bool | None,
    candidate: Sequence[Sequence[int]] | None, keep: Filter | None,
) -> Choices:  # fmt: skip
    """Choices of a split; see :meth:`ConfigSpace.define_split`."""
    _check_policy(name, policy, SPLIT_POLICIES, candidate)
    if extent < 1 or num_outputs < 1:
        raise OptionError(f"knob {name!r}: an axis of {extent} cannot be split into {num_outputs} axes")
    if candidate is not None:
        sizes = [_covering(name, list(size), extent, num_outputs) for size in candidate]
        generate: Callable[[], Iterable[Any]] = lambda: sizes  # noqa: E731
    else:
        factors = [f for f in _factors(extent, policy) if max_factor is None or f <= max_factor]
        divides = policy == "factors" if no_tail is None else no_tail
        generate = functools.partial(_splits, extent, num_outputs, factors, divides)
    axes = [Axis(f"{name}.{i}") for i in range(num_outputs)]
    return Choices(name, "sp", generate, keep=keep, normalize=lambda v: _with_outer(v, extent), axes=axes)


def _factors(extent: int, policy: str) -> list[int]:
    """Sizes that inner axes may have, ascending."""
    powers = {1 << bits for bits in range(extent.bit_length())}
    if policy == "power2":
        return sorted(powers)
    below = [f for f in range(1, math.isqrt(extent) + 1) if extent % f == 0]
    divisors = {*below, *(extent // f for f in below)}
    return sorted(divisors | powers if policy == "verbose" else divisors)


def _splits(extent: int, outputs: int, factors: Sequence[int], divides: bool) -> Iterator[list[int]]:
    """All splits, the innermost size varying slowest."""

    def walk(inner: tuple[int, ...], room: int) -> Iterator[list[int]]:
        if len(inner) == outputs - 1:
            yield [-(-extent // math.prod(inner)), *inner]
            return
        for factor in factors:
            if factor > room:
                return
            if not divides or room % factor == 0:
                yield from walk((factor, *inner), room // factor)

    return walk((), extent)


def _with_outer(size: Any, extent: int) -> Any:
    """A split with its outermost size in place of AutoTVM's -1."""
    if not isinstance(size, list | tuple) or not size or size[0] != -1:
        return size
    inner = [int(s) for s in size[1:]]
    return [-(-extent // math.prod(inner)), *inner] if all(s > 0 for s in inner) else size


def _covering(name: str, size: list[int], extent: int, outputs: int) -> list[int]:
    """A split that the user wrote.

    Raises:
        OptionError: it does not cover the axis, or has another number of sizes.
    """
    full = plain(name, _with_outer(size, extent))
    if len(full) != outputs or not all(isinstance(s, int) and s > 0 for s in full):
        raise OptionError(f"knob {name!r}: candidate {size} is no list of {outputs} sizes (num_outputs={outputs})")
    if full[0] != -(-extent // math.prod(full[1:])):
        raise OptionError(
            f"knob {name!r}: candidate {size} makes {math.prod(size)} of an axis of {extent}",
            fix="write -1 for the outermost size, or sizes that multiply to the axis",
        )
    return list(full)


# ------------------------------------------------------------------------------------------------ orders
def reorder_choices(
    name: str, axes: Sequence[Any], policy: str, candidate: Sequence[Sequence[Any]] | None,
    interval: tuple[int, int] | None, chains: tuple[Sequence[Any], Sequence[Any]], keep: Filter | None,
) -> Choices:  # fmt: skip
    """Choices of an order; see :meth:`ConfigSpace.define_reorder`."""
    _check_policy(name, policy, REORDER_POLICIES, candidate)
    axes, count = list(axes), len(axes)
    places = functools.partial(_places_of, name, axes)
    generate: Callable[[], Iterable[Any]]
    if candidate is not None:
        orders = [places(order) for order in candidate]
        if any(sorted(order) != list(range(count)) for order in orders):
            raise OptionError(f"knob {name!r}: a candidate is no order of all its {count} axes")
    elif policy == "interleave":
        spatial, reduce = ([places(chain) for chain in part] for part in chains)
        orders = [_merged([c[:-1] for c in spatial]) + _merged([c[-1:] for c in spatial] + reduce)]
    else:
        begin, end = (interval or (0, 0)) if policy == "interval_all" else (0, count if policy == "all" else 0)
        generate = functools.partial(_permutations, begin, end, count)
        return Choices(name, "re", generate, keep=keep, axes=_unknown(name, count))
    return Choices(name, "re", lambda: orders, keep=keep, axes=_unknown(name, count))


def _permutations(begin: int, end: int, count: int) -> Iterator[list[int]]:
    """Orders of all axes in which those of the interval change places."""
    for middle in itertools.permutations(range(begin, end)):
        yield [*range(begin), *middle, *range(max(begin, end), count)]


def _places_of(name: str, axes: list[Any], order: Sequence[Any]) -> list[int]:
    missing = [axis for axis in order if axis not in axes]
    if missing:
        raise OptionError(f"knob {name!r}: {missing[0]} is none of its axes: {', '.join(map(str, axes))}")
    return [axes.index(axis) for axis in order]


def _merged(chains: Sequence[Sequence[int]]) -> list[int]:
    """Chains as one, always from the one with the most left, the first of equals."""
    left = [list(chain) for chain in chains]
    merged = []
    while any(left):
        merged.append(max(left, key=len).pop(0))
    return merged


# ------------------------------------------------------------------------------------------------ annotations
def annotate_choices(
    name: str, axes: Sequence[Any], policy: str, candidate: Sequence[Sequence[str]] | None, keep: Filter | None
) -> Choices:
    """Choices of annotations; see :meth:`ConfigSpace.define_annotate`."""
    words = policy.replace("try", "none").split("_")
    if candidate is not None:
        _check_policy(name, policy, ("candidate",), candidate)
        lists = [list(anns) for anns in candidate]
        words = [ann for anns in lists for ann in anns]
        if any(len(anns) != len(axes) for anns in lists):
            raise OptionError(f"knob {name!r}: a candidate has not one annotation for each of its {len(axes)} axes")
    if unknown := [word for word in words if word not in ANNOTATIONS]:
        raise OptionError(
            f"knob {name!r}: policy or annotation {unknown[0]!r}: choose of {', '.join(map(repr, ANNOTATIONS))}",
            fix='a policy is "none", words joined by "_" after "try" such as "try_unroll_vec", or "candidate"',
        )
    generate = (lambda: lists) if candidate is not None else functools.partial(_annotations, len(axes), words)
    return Choices(name, "an", generate, keep=keep, axes=_unknown(name, len(axes)))


def _annotations(count: int, words: Sequence[str]) -> Iterator[list[str]]:
    """One word an axis; at most one axis is vectorized, and at most one parallel."""
    for anns in itertools.product(words, repeat=count):
        if anns.count("vec") <= 1 and anns.count("parallel") <= 1:
            yield list(anns)


def _unknown(name: str, count: int) -> list[Axis]:
    return [Axis(f"{name}.{i}") for i in range(count)]


def _check_policy(name: str, policy: str, known: Sequence[str], candidate: Any) -> None:
    if policy not in known:
        raise OptionError(f"knob {name!r}: policy={policy!r}: choose of {', '.join(map(repr, known))}")
    if (policy == "candidate") != (candidate is not None):
        raise OptionError(f"knob {name!r}: policy={policy!r} and candidate= do not go together")
