"""Support vectors: kernels of a row and each of them, by coefficients.

SVMRegressor(x)    ->   k(x, v) c + rho
SVMClassifier(x)   ->   such a score for each two classes, a vote for one of both
"""

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...checks.refusal import Refusal
from ..base import ML, Attributes, constant, converts, emit, kernel, scalar, static_shape, text
from ..microsoft.matrices import distances
from .ensembles import of_one
from .features import numbers
from .linear import rows_of
from .scores import best_label, labels_of, post_transform, transformed
from .trees import numbered

#: Probabilities of pairs are coupled in so many rounds at most, until no one is off by more than this; and none of
#: them is nearer to 0 or 1 than that.
_ROUNDS, _OFF, _NEAREST = 100, 0.005, 1e-7


@converts("SVMRegressor", ML)
def regressor(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SVMRegressor(x) -> (rows, 1): kernels of x and each support vector, by their coefficients, and rho."""
    x = rows_of(inputs[0])
    width, count = static_shape(x, "the rows")[1], int(attributes.get("n_supports", 0))
    coefficients, rho = numbers(attributes, "coefficients"), numbers(attributes, "rho")
    if count:
        similar = _kernel(x, count, attributes)
    else:  # the coefficients are the one vector of a linear model
        similar, coefficients = x, coefficients[:width]
    y = emit(relax.op.matmul(similar, constant(coefficients.reshape(-1, 1))))
    y = emit(y + constant(rho[:1]))
    if attributes.get("one_class", 0):
        positive = emit(relax.op.greater(y, scalar(0, y)))
        return relax.op.where(positive, scalar(1, y), scalar(-1, y))
    return y


def _kernel(x: Any, count: int, attributes: Attributes) -> Any:
    """(rows, support vectors) of one of four kernels, of gamma, an offset and a degree.

    Raises:
        Refusal: the vectors are not of as many features as x.
    """
    kind, vectors = text(attributes, "kernel_type", "LINEAR"), numbers(attributes, "support_vectors")
    if vectors.size != count * (width := static_shape(x, "the rows")[1]):
        raise Refusal(f"{vectors.size} numbers in 'support_vectors' for {count} vectors of {width} features")
    vectors = vectors.reshape(count, width)
    gamma, offset, degree = (*map(float, numbers(attributes, "kernel_params")), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        squares = emit(distances([x, constant(vectors)], {}, 1))
        return emit(relax.op.exp(squares * scalar(-gamma, squares)))
    product = emit(relax.op.matmul(x, constant(vectors.T)))
    if kind == "LINEAR":
        return product
    shifted = emit(product * scalar(gamma, product) + scalar(offset, product))
    if kind == "POLY":
        return emit(relax.op.power(shifted, scalar(degree, shifted)))
    if kind == "SIGMOID":
        return emit(relax.op.tanh(shifted))
    raise Refusal(f"kernel_type {kind!r}; LINEAR, POLY, RBF and SIGMOID work")


# ------------------------------------------------------------ classes
@converts("SVMClassifier", ML)
def classifier(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SVMClassifier(x) -> label and scores of each row.

    Scores are those of pairs of classes, of which a single one is written as those of both; with `prob_a` and `prob_b`
    they are probabilities of classes; without support vectors they are those of a linear model. A label is that of most
    votes.
    """
    labels, sizes = labels_of(attributes, "classlabels_ints"), numbered(attributes, "vectors_per_class")
    x, kind = rows_of(inputs[0]), post_transform(attributes)
    if len(labels) < 2 or (sizes.sum() and len(sizes) != len(labels)):
        raise Refusal(f"{len(labels)} labels in 'classlabels_ints' for {len(sizes)} classes in 'vectors_per_class'")
    if not sizes.sum():
        return _of_a_linear_model(x, labels, attributes, kind)
    first, second = np.triu_indices(len(labels), 1)
    weights = _weights_of_pairs(sizes, first, second, attributes)
    rho, slopes, offsets = (_of_pairs(attributes, name, len(first)) for name in ("rho", "prob_a", "prob_b"))
    scores = emit(relax.op.matmul(_kernel(x, int(sizes.sum()), attributes), constant(weights)))
    scores = emit(scores + constant(rho))
    won = emit(relax.op.astype(relax.op.greater(scores, scalar(0, scores)), "float32"))
    units = np.eye(len(labels), dtype=np.float32)
    votes = emit(relax.op.matmul(won, constant(units[first] - units[second])) + constant(units[second].sum(0)))
    label = best_label(votes, labels)
    if slopes.size and offsets.size:
        chances = emit(relax.op.sigmoid(relax.op.negative(emit(scores * constant(slopes) + constant(offsets)))))
        return relax.Tuple([label, transformed(_coupled(chances, len(labels)), kind)])
    if len(labels) > 2:
        return relax.Tuple([label, transformed(scores, kind)])
    return relax.Tuple([label, of_one(scores, kind, 0.0 if kind == "NONE" else 1.0)])


def _of_a_linear_model(x: Any, labels: np.ndarray, attributes: Attributes, kind: str) -> Any:
    """Label and scores; of two classes the second one has the label where a score is large."""
    width, weights = static_shape(x, "the rows")[1], numbers(attributes, "coefficients")
    if weights.size != len(labels) * width:
        raise Refusal(f"{weights.size} coefficients for {len(labels)} classes of {width} features")
    scores = emit(relax.op.matmul(x, constant(weights.reshape(len(labels), width).T)))
    scores = emit(scores + constant(numbers(attributes, "rho")[:1]))
    label = best_label(scores, labels)
    if len(labels) == 2:
        top = emit(relax.op.max(scores, -1))
        test, least = (relax.op.greater_equal, 0.5) if (weights >= 0).all() else (relax.op.greater, 0.0)
        label = emit(relax.op.where(emit(test(top, scalar(least, top))), constant(labels[1]), label))
    return relax.Tuple([label, transformed(scores, kind)])


def _of_pairs(attributes: Attributes, name: str, pairs: int) -> np.ndarray:
    """A number for each two classes; none where the attribute is left out."""
    values = numbers(attributes, name)
    if values.size < pairs and (values.size or name == "rho"):
        raise Refusal(f"{values.size} numbers in {name!r} for {pairs} pairs of classes")
    return values[:pairs]


def _weights_of_pairs(sizes: np.ndarray, first: np.ndarray, second: np.ndarray, attributes: Attributes) -> np.ndarray:
    """(vectors, pairs): the coefficient of each vector in the score of each two classes, 0 of those of others.

    A vector has a coefficient against each class but its own.
    """
    total, coefficients = int(sizes.sum()), numbers(attributes, "coefficients")
    if coefficients.size != (len(sizes) - 1) * total or (sizes < 0).any():
        raise Refusal(f"{coefficients.size} coefficients for {total} vectors of {len(sizes)} classes")
    table, owner = coefficients.reshape(-1, total), np.repeat(np.arange(len(sizes)), sizes)
    weights = np.zeros((total, len(first)), np.float32)
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        weights[owner == i, pair] = table[j - 1, owner == i]
        weights[owner == j, pair] = table[i, owner == j]
    return weights


def _coupled(chances: Any, classes: int) -> Any:
    """(rows, classes) of probabilities (rows, pairs) that of two classes it is the first.

    By the second method of T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for Multi-class Classification by
    Pairwise Coupling", 2004, as LIBSVM stops it.
    """
    chances = emit(relax.op.clip(chances, _NEAREST, 1 - _NEAREST))
    sides = emit(relax.op.concat([chances, emit(scalar(1, chances) - chances)], 1))
    first, second = np.triu_indices(classes, 1)
    places = np.zeros((classes, classes), np.int64)
    places[first, second], places[second, first] = np.arange(len(first)), len(first) + np.arange(len(first))
    pairs = emit(relax.op.take(sides, constant(places.reshape(-1)), 1, mode="wrap"))
    rows = static_shape(chances, "the rows")[0]

    def compute(data: te.Tensor) -> te.Tensor:
        return te.extern([(rows, classes)], [data], lambda ins, outs: _iterated(ins[0], outs[0]), dtype="float32")

    return emit(kernel(compute, emit(relax.op.reshape(pairs, (rows, classes, classes))), name="coupled"))


def _iterated(pairs: Any, result: Any) -> Any:
    rows, classes = (int(d) for d in result.shape)
    zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")
    with IRBuilder() as builder:
        r, p = T.buffer_proxy(pairs), T.buffer_proxy(result)
        with T.serial(0, rows) as n:
            q, slope = _own(classes, classes), _own(classes)
            state = _own(2)  # p Q p, and how far off it is
            with T.serial(0, classes) as i:
                p[n, i] = one / classes
                with T.serial(0, classes) as j:
                    q[i, j] = tirx.Select(i == j, zero, -r[n, j, i] * r[n, i, j])
            with T.grid(classes, classes) as (i, j):
                q[i, i] = q[i, i] + tirx.Select(i == j, zero, r[n, j, i] * r[n, j, i])
            state[1] = one
            with T.serial(0, _ROUNDS), T.If(state[1] >= _OFF / classes), T.Then():
                _measured(q, lambda i: p[n, i], slope, state, classes)
                with T.If(state[1] >= _OFF / classes), T.Then(), T.serial(0, classes) as i:
                    step = _own(1)
                    step[0] = (state[0] - slope[i]) / q[i, i]
                    whole = one + step[0]
                    p[n, i] = p[n, i] + step[0]
                    state[0] = (state[0] + step[0] * (step[0] * q[i, i] + slope[i] * 2)) / whole / whole
                    with T.serial(0, classes) as j:
                        slope[j] = (slope[j] + step[0] * q[i, j]) / whole
                        p[n, j] = p[n, j] / whole
        return builder.get()


def _own(*shape: int) -> Any:
    return T.buffer_proxy(T.alloc_buffer(shape, "float32", scope="local", layout=None))


def _measured(q: Any, p: Any, slope: Any, state: Any, classes: int) -> None:
    """Q p, p Q p, and the largest distance between them."""
    state[0] = tirx.const(0, "float32")
    state[1] = tirx.const(0, "float32")
    with T.serial(0, classes) as i:
        slope[i] = tirx.const(0, "float32")
        with T.serial(0, classes) as j:
            slope[i] = slope[i] + q[i, j] * p(j)
        state[0] = state[0] + p(i) * slope[i]
    with T.serial(0, classes) as i:
        state[1] = tirx.max(state[1], tirx.abs(slope[i] - state[0]))
