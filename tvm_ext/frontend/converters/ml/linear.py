"""Linear models: matmuls with the numbers that the attributes hold.

LinearRegressor(x)   ->   x w^T + b
"""

from typing import Any

from tvm import relax

from ...checks.refusal import Refusal
from ..base import ML, Attributes, constant, converts, emit, static_shape
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
    x = rows_of(x)
    width, weights = static_shape(x, "the rows")[1], numbers(attributes, "coefficients")
    if weights.size != outputs * width:
        raise Refusal(f"{weights.size} coefficients for {outputs} outputs of {width} features")
    y = emit(relax.op.matmul(x, constant(weights.reshape(outputs, width).T)))
    bias = numbers(attributes, "intercepts")
    return emit(y + constant(bias)) if bias.size else y


def rows_of(x: Any) -> Any:
    """(rows, features) in float32; a vector is one row."""
    x = floats(x)
    return emit(relax.op.expand_dims(x, 0)) if len(static_shape(x, "the rows")) == 1 else x


@converts("LinearClassifier", ML)
def classifier(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LinearClassifier(x) -> label and scores of each row; one score, of two classes, is that of the second."""
    labels, width = labels_of(attributes, "classlabels_ints"), static_shape(rows_of(inputs[0]), "the rows")[1]
    outputs = max(numbers(attributes, "coefficients").size // max(width, 1), 1)
    if len(labels) != max(outputs, 2):
        raise Refusal(f"{len(labels)} labels in 'classlabels_ints' for {outputs} scores")
    scores, kind = _product(inputs[0], attributes, outputs), post_transform(attributes)
    if outputs == 1:
        return relax.Tuple([label_above(scores, labels, 0.0), of_one(scores, kind, 1.0)])
    return relax.Tuple([best_label(scores, labels), transformed(scores, kind)])
