"""Einsum as matmuls, products, sums and transposes.

    Einsum("bqhd,bkhd->bhqk", q, k)   ->   matmul(permute(q), permute(k))
    Einsum("ij,jk,kl->il", a, b, c)   ->   two matmuls, in the order of least work

Of up to `_SEARCHED` operands every order is looked at, of more the cheapest pair is joined first.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from ...core.graph.relax_graph import dtype_of
from ..checks.refusal import Refusal
from .base import Attributes, constant, converts, emit, static_shape, text

_SEARCHED = 5
Labels = tuple[str, ...]


@dataclass(frozen=True)
class _Term:
    """A tensor with a label for each dimension, no two alike."""

    value: Any
    labels: Labels

    def ordered(self, labels: Sequence[str]) -> _Term:
        """The same tensor with its dimensions in this order."""
        if tuple(labels) == self.labels:
            return self
        axes = [self.labels.index(label) for label in labels]
        return _Term(emit(relax.op.permute_dims(self.value, axes)), tuple(labels))

    def summed(self, kept: Iterable[str]) -> _Term:
        """Summed over what is not kept."""
        kept = set(kept)
        axes = [i for i, label in enumerate(self.labels) if label not in kept]
        if not axes:
            return self
        return _Term(emit(relax.op.sum(self.value, axes)), tuple(lab for lab in self.labels if lab in kept))


@converts("Einsum")
def einsum(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Einsum of any number of operands; labels of size 1 broadcast."""
    equation = "".join(text(attributes, "equation", "").split())
    operands = list(inputs)
    shapes = [static_shape(x, f"operand {i} of Einsum") for i, x in enumerate(operands)]
    labels, result = _parsed(equation, [len(shape) for shape in shapes])
    sizes = _sizes(equation, labels, shapes)
    if 0 in sizes.values():  # nothing, or sums of nothing
        return constant(np.zeros([sizes[label] for label in result]), dtype_of(operands[0]))
    terms = [_without_repeats(*item, sizes) for item in zip(operands, labels, shapes, strict=True)]
    for i, j in _order([term.labels for term in terms], result, sizes):
        right, left = terms.pop(j), terms.pop(i)
        kept = {*result, *itertools.chain.from_iterable(term.labels for term in terms)}
        terms.append(_joined(left, right, kept, result, sizes))
    return terms[0].summed(result).ordered(result).value


# ------------------------------------------------------------ the equation
def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """A label for each dimension of each operand, and of the result; those of an ellipsis are counted from its end."""
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise Refusal(f"its equation {equation!r} is for {len(texts)} operands, but it has {len(ranks)}")
    labels = [_labels(equation, part, rank) for part, rank in zip(texts, ranks, strict=True)]
    count = Counter(itertools.chain.from_iterable(labels))
    dots = tuple(sorted((label for label in count if label[0] == "."), key=lambda label: -int(label[1:])))
    result = _labels(equation, right, len(right.replace("...", "")) + len(dots) * ("..." in right)) if arrow else (
        *dots, *sorted(label for label, n in count.items() if n == 1 and label[0] != ".")
    )  # fmt: skip
    if wrong := [label for label in result if label not in count] or [a for a, n in Counter(result).items() if n > 1]:
        labelled = f"its equation {equation!r} has {wrong[0]!r} in the result"
        raise Refusal(f"{labelled}, which has labels of operands, once each")
    if lost := set(dots) - set(result):
        raise Refusal(f"its equation {equation!r} has no '...' in the result, but that of its operands stands for "
                      f"{len(lost)} dimensions", fix="write '...' behind '->' too")  # fmt: skip
    return labels, result


def _labels(equation: str, part: str, rank: int) -> Labels:
    before, dots, after = part.partition("...")
    named = before + after
    if not all(c.isascii() and c.isalpha() for c in named):
        raise Refusal(f"its equation {equation!r}: {part!r} is no list of letters with '...' at most once")
    more = rank - len(named)
    if more < 0 or (more and not dots):
        raise Refusal(f"its equation {equation!r}: {part!r} has {len(named)} labels for {rank} dimensions")
    return (*before, *(f".{k}" for k in range(more, 0, -1)), *after)


def _sizes(equation: str, labels: Sequence[Labels], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Label -> size; dimensions of size 1 fit any other."""
    sizes: dict[str, int] = {}
    for label, size in itertools.chain.from_iterable(map(zip, labels, shapes)):
        if sizes.setdefault(label, size) == 1:
            sizes[label] = size
        if size not in (1, sizes[label]):
            raise Refusal(f"its equation {equation!r}: {label!r} is {sizes[label]} in one place and {size} in another")
    return sizes


def _without_repeats(x: Any, labels: Labels, shape: tuple[int, ...], sizes: Mapping[str, int]) -> _Term:
    """An operand without the dimensions of size 1 that broadcast, and with its diagonal where it has a label twice."""
    single = [i for i, (label, size) in enumerate(zip(labels, shape, strict=True)) if size < sizes[label]]
    if single:
        x, labels = emit(relax.op.squeeze(x, single)), tuple(lab for i, lab in enumerate(labels) if i not in single)
    while repeated := [label for label, n in Counter(labels).items() if n > 1]:
        first = labels.index(repeated[0])
        second, n = labels.index(repeated[0], first + 1), sizes[repeated[0]]
        rest = [i for i in range(len(labels)) if i not in (first, second)]
        x = emit(relax.op.permute_dims(x, [first, second, *rest]))
        x = emit(relax.op.reshape(x, [n * n, *(sizes[labels[i]] for i in rest)]))
        x = emit(relax.op.strided_slice(x, [0], [0], [n * n], [n + 1]))
        labels = (repeated[0], *(labels[i] for i in rest))
    return _Term(x, labels)


# ------------------------------------------------------------ the order
def _order(terms: Sequence[Labels], result: Labels, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    """Pairs of places, i < j; each pair is taken out, and what it becomes put at the end."""
    return _cheapest([frozenset(t) for t in terms], frozenset(result), sizes, len(terms) <= _SEARCHED)[1]


def _cheapest(
    terms: list[frozenset[str]], result: frozenset[str], sizes: Mapping[str, int], every: bool
) -> tuple[float, list[tuple[int, int]]]:
    """The order of least multiply-adds, and their number; not `every`: the first pair is the cheapest one."""
    if len(terms) == 1:
        return 0.0, []

    def work(pair: tuple[int, int]) -> float:
        return float(math.prod(sizes[label] for label in terms[pair[0]] | terms[pair[1]]))

    pairs = list(itertools.combinations(range(len(terms)), 2))
    best: tuple[float, list[tuple[int, int]]] = (math.inf, [])
    for i, j in pairs if every else [min(pairs, key=work)]:
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        joined = (terms[i] | terms[j]) & result.union(*rest)
        cost, order = _cheapest([*rest, joined], result, sizes, every)
        best = min(best, (cost + work((i, j)), [(i, j), *order]), key=lambda candidate: candidate[0])
    return best


# ------------------------------------------------------------ one product
def _joined(a: _Term, b: _Term, kept: set[str], result: Labels, sizes: Mapping[str, int]) -> _Term:
    """The product of two tensors, summed over what nothing needs."""
    a, b = a.summed(kept | set(b.labels)), b.summed(kept | set(a.labels))
    if _place(b, a, result) < _place(a, b, result):
        a, b = b, a
    shared = [label for label in a.labels if label in b.labels]
    batch = sorted((s for s in shared if s in kept), key=lambda s: result.index(s) if s in result else len(result))
    summed = [label for label in shared if label not in kept]
    rows, columns = ([label for label in t.labels if label not in shared] for t in (a, b))
    labels = (*batch, *rows, *columns)

    def shaped(term: _Term, order: list[str], *last: Sequence[str]) -> Any:
        """The tensor with each group of last dimensions as one; of none as a dimension of 1."""
        value, shape = term.ordered(order).value, [sizes[label] for label in batch]
        shape += [math.prod(sizes[label] for label in group) for group in last]
        return value if shape == [sizes[label] for label in order] else emit(relax.op.reshape(value, shape))

    if summed:
        left = shaped(a, [*batch, *rows, *summed], rows, summed)
        right = shaped(b, [*batch, *summed, *columns], summed, columns)
        product = emit(relax.op.matmul(left, right))
    else:
        left = shaped(a, [*batch, *rows], *([s] for s in rows), *([] for _ in columns))
        right = shaped(b, [*batch, *columns], *([] for _ in rows), *([s] for s in columns))
        product = emit(left * right)
    shape = [sizes[label] for label in labels]
    in_place = not summed or len(rows) == len(columns) == 1
    return _Term(product if in_place else emit(relax.op.reshape(product, shape)), labels)


def _place(term: _Term, other: _Term, result: Labels) -> int:
    """Where the first dimension that only one of two tensors has stands in the result."""
    return min((result.index(s) for s in term.labels if s in result and s not in other.labels), default=len(result))
