"""Linear models and support vectors: matmuls with the numbers that the attributes hold.

LinearRegressor(x)   ->   x w^T + b
"""

from typing import Any

import numpy as np
from tvm import relax

from ...checks.refusal import Refusal
from ..base import ML, Attributes, constant, converts, emit, scalar, static_shape, text
from ..microsoft.matrices import distances
from .ensembles import of_one
from .features import floats, numbers
from .scores import best_label, label_above, labels_of, post_transform, transformed


@converts("LinearRegressor", ML)
def regressor(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LinearRegressor(x) -> (rows, targets); a single target is not transformed, as in onnxruntime."""
    targets = int(attributes.get("targets", 1))
    y = _product(inputs[0], attributes, targets)
    kind = post_transform(attributes)
    return y if targets == 1 and kind != "PROBIT" else transformed(y, kind)


def _product(x: Any, attributes: Attributes, outputs: int) -> Any:
    x = _rows(x)
    width, weights = static_shape(x, "the rows")[1], numbers(attributes, "coefficients")
    if weights.size != outputs * width:
        raise Refusal(f"{weights.size} coefficients for {outputs} outputs of {width} features")
    y = emit(relax.op.matmul(x, constant(weights.reshape(outputs, width).T)))
    bias = numbers(attributes, "intercepts")
    return emit(y + constant(bias)) if bias.size else y


def _rows(x: Any) -> Any:
    """(rows, features) in float32; a vector is one row."""
    x = floats(x)
    return emit(relax.op.expand_dims(x, 0)) if len(static_shape(x, "the rows")) == 1 else x


@converts("LinearClassifier", ML)
def classifier(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LinearClassifier(x) -> label and scores of each row; one score, of two classes, is that of the second."""
    labels, width = labels_of(attributes, "classlabels_ints"), static_shape(_rows(inputs[0]), "the rows")[1]
    outputs = max(numbers(attributes, "coefficients").size // max(width, 1), 1)
    if len(labels) != max(outputs, 2):
        raise Refusal(f"{len(labels)} labels in 'classlabels_ints' for {outputs} scores")
    scores, kind = _product(inputs[0], attributes, outputs), post_transform(attributes)
    if outputs == 1:
        return relax.Tuple([label_above(scores, labels, 0.0), of_one(scores, kind, 1.0)])
    return relax.Tuple([best_label(scores, labels), transformed(scores, kind)])


@converts("SVMRegressor", ML)
def support_vectors(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SVMRegressor(x) -> (rows, 1): kernels of x and each support vector, by their coefficients, and rho."""
    x = _rows(inputs[0])
    width, count = static_shape(x, "the rows")[1], int(attributes.get("n_supports", 0))
    coefficients, rho = numbers(attributes, "coefficients"), numbers(attributes, "rho")
    if count:
        vectors = numbers(attributes, "support_vectors").reshape(count, -1)
        similar = _kernel(x, vectors, text(attributes, "kernel_type", "LINEAR"), numbers(attributes, "kernel_params"))
    else:  # the coefficients are the one vector of a linear model
        similar, coefficients = x, coefficients[:width]
    y = emit(relax.op.matmul(similar, constant(coefficients.reshape(-1, 1))))
    y = emit(y + constant(rho[:1]))
    if attributes.get("one_class", 0):
        positive = emit(relax.op.greater(y, scalar(0, y)))
        return relax.op.where(positive, scalar(1, y), scalar(-1, y))
    return y


def _kernel(x: Any, vectors: np.ndarray, kind: str, parameters: np.ndarray) -> Any:
    """(rows, support vectors) of one of four kernels, of gamma, an offset and a degree."""
    gamma, offset, degree = (*(float(p) for p in parameters), 0.0, 0.0, 0.0)[:3]
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
