"""What regressors and classifiers do with their scores: transforms, a second class, and the label.

one score s of two classes   ->   scores [1 - s, s], or [-s, s]; the label of the second class where s is large
"""

from typing import Any

import numpy as np
from tvm import relax

from ...checks.refusal import Refusal
from ..base import Attributes, constant, emit, scalar, static_shape, text
from .features import no_strings

#: Order of the numbers that TreeEnsemble has for names.
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transformed(scores: Any, kind: str) -> Any:
    """Scores (rows, n) after a transform.

    Raises:
        Refusal: a name that there is not.
    """
    if kind not in TRANSFORMS:
        raise Refusal(f"post_transform {kind!r}; known are {', '.join(TRANSFORMS)}")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return emit(relax.op.sigmoid(scores))
    if kind == "SOFTMAX":
        return emit(relax.op.nn.softmax(scores, -1))
    if kind == "PROBIT":
        return _probit(scores)
    zero = emit(relax.op.less_equal(relax.op.abs(scores), scalar(1e-7, scores)))  # which takes no part, and stays
    low = scalar(float(np.finfo(np.float32).min), scores)
    weights = emit(relax.op.nn.softmax(relax.op.where(zero, low, scores), -1))
    return emit(relax.op.where(zero, scores, weights))


def _probit(p: Any) -> Any:
    """The quantile of the normal distribution, sqrt(2) erfinv(2 p - 1), as onnxruntime approximates it.

    erfinv by S. Winitzki, "A handy approximation for the error function and its inverse", 2008, off by up to 2e-3.
    """
    x = emit(p * scalar(2, p) - scalar(1, p))
    log = emit(relax.op.log((scalar(1, p) - x) * (scalar(1, p) + x)))
    half = emit(log * scalar(0.5, p) + scalar(2 / (3.14159 * 0.147), p))
    root = emit(relax.op.sqrt(half * half - log * scalar(1 / 0.147, p)))
    size = emit(relax.op.sqrt(root - half) * scalar(2**0.5, p))
    return emit(relax.op.where(relax.op.less(x, scalar(0, p)), relax.op.negative(size), size))


def labels_of(attributes: Attributes, name: str) -> np.ndarray:
    """The labels of a classifier, integers.

    Raises:
        Refusal: they are strings.
    """
    no_strings(attributes, "classlabels_strings")
    return np.array(attributes.get(name, ()), np.int64)


def post_transform(attributes: Attributes) -> str:
    """The name of the transform of a node."""
    return text(attributes, "post_transform", "NONE")


def best_label(scores: Any, labels: np.ndarray) -> Any:
    """The label of the largest score of each row."""
    return emit(relax.op.take(constant(labels), relax.op.argmax(scores, -1), 0, mode="wrap"))


def label_above(score: Any, labels: np.ndarray, threshold: float) -> Any:
    """The second label where a score (rows, 1) is above a threshold, else the first."""
    rows = static_shape(score, "the scores")[0]
    flat = emit(relax.op.reshape(score, (rows,)))
    above = emit(relax.op.greater(flat, scalar(threshold, flat)))
    return emit(relax.op.where(above, constant(labels[1]), constant(labels[0])))


def both(first: Any, second: Any) -> Any:
    """Scores of two classes beside each other."""
    return emit(relax.op.concat([first, second], -1))
