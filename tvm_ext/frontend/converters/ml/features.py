"""Operators that change features one by one: scaled, made binary, filled in, picked, joined, encoded.

Scaler(x)   ->   (float32(x) - offset) * scale
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import ML, Attributes, as_dtype, constant, converts, emit, scalar, static_shape, text
from ..selection.indexing import gather

#: From this version on a NaN is a key of a LabelEncoder as others are.
_NAN_IS_A_KEY = 4


def floats(x: Any) -> Any:
    """A tensor in float32."""
    return as_dtype(x, "float32")


def numbers(attributes: Attributes, name: str) -> np.ndarray:
    """An attribute of floats; none where it is left out."""
    return np.array(attributes.get(name, ()), np.float32)


def no_strings(attributes: Attributes, *names: str) -> None:
    """Raises Refusal where an attribute holds strings."""
    for name in names:
        if len(attributes.get(name, ())):
            raise Refusal(f"{name}: strings are no tensors of a program", fix="give the model numbers for its strings")


@converts("Scaler", ML)
def scaler(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Scaler(x) -> (x - offset) * scale, of one number or one a feature, in float32."""
    x, width = floats(inputs[0]), static_shape(inputs[0], "the features")[-1]
    for name, operator in (("offset", relax.op.subtract), ("scale", relax.op.multiply)):
        factor = numbers(attributes, name)
        if factor.size not in (0, 1, width):
            raise Refusal(f"{factor.size} numbers in {name!r} for {width} features")
        x = emit(operator(x, constant(factor))) if factor.size else x
    return x


@converts("Normalizer", ML)
def normalizer(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Normalizer(x) -> each row over its largest element, or over its norm of order 1 or 2; in float32.

    A row whose norm is 0 stays as it is.
    """
    x, kind = floats(inputs[0]), text(attributes, "norm", "MAX")
    axis = -1
    if kind == "MAX":
        norm = relax.op.max(x, axis, keepdims=True)
    elif kind == "L1":
        norm = relax.op.sum(relax.op.abs(x), axis, keepdims=True)
    elif kind == "L2":
        norm = relax.op.sqrt(relax.op.sum(x * x, axis, keepdims=True))
    else:
        raise Refusal(f"norm {kind!r}; MAX, L1 and L2 work")
    norm = emit(norm)
    norm = emit(relax.op.where(relax.op.equal(norm, scalar(0, norm)), scalar(1, norm), norm))
    return x / norm


@converts("Binarizer", ML)
def binarizer(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Binarizer(x) -> 1 where x is above the threshold, else 0, in the dtype of x."""
    x = inputs[0]
    above = emit(relax.op.greater(x, scalar(float(attributes.get("threshold", 0.0)), x)))
    return relax.op.astype(above, dtype_of(x))


@converts("Imputer", ML)
def imputer(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Imputer(x) -> x with a number for each element that is missing: NaN, or one that the attributes name."""
    x, width = inputs[0], static_shape(inputs[0], "the features")[-1]
    whole = "int" in dtype_of(x)
    name = "imputed_value_int64s" if whole else "imputed_value_floats"
    filling = np.array(attributes.get(name, ()))
    if filling.size not in (1, width):
        raise Refusal(f"{filling.size} numbers in {name!r} for {width} features")
    missing = attributes.get("replaced_value_int64" if whole else "replaced_value_float", 0)
    is_missing = relax.op.isnan(x) if np.isnan(missing) else relax.op.equal(x, scalar(missing, x))
    return relax.op.where(emit(is_missing), constant(filling, dtype_of(x)), x)


@converts("ArrayFeatureExtractor", ML)
def extractor(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ArrayFeatureExtractor(x, i) -> the features i of each row."""
    x, picks = inputs[0], emit(relax.op.reshape(inputs[1], (-1,)))
    if len(static_shape(x, "the features")) == 1:
        x = emit(relax.op.expand_dims(x, 0))
    if 0 in static_shape(x, "the features"):
        raise Refusal("there are no features")
    return gather([x, picks], {"axis": len(static_shape(x, "the features")) - 1}, opset)


@converts("FeatureVectorizer", ML)
def vectorizer(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FeatureVectorizer(x1, x2, ...) -> all features of a row beside each other, in float32.

    An input has as many as `inputdimensions` says: what it has more is left out, what it lacks is 0.
    """
    parts = []
    for x, wanted in zip(inputs, attributes.get("inputdimensions", ()), strict=False):
        shape = static_shape(x, "the features")
        flat = floats(emit(relax.op.reshape(x, (1, -1) if len(shape) == 1 else (shape[0], -1))))
        rows, width = static_shape(flat, "the features")
        part = emit(relax.op.strided_slice(flat, [1], [0], [min(width, int(wanted))]))
        if width < wanted:
            part = emit(relax.op.concat([part, constant(np.zeros((rows, int(wanted) - width)), "float32")], 1))
        parts.append(part)
    if len(parts) != len(list(inputs)):
        raise Refusal(f"{len(parts)} numbers in 'inputdimensions' for {len(list(inputs))} inputs")
    return relax.op.concat(parts, 1)


@converts("OneHotEncoder", ML)
def one_hot(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """OneHotEncoder(x) -> 1 where x is the category, else 0, in a last dimension; only 0 where x is of none of them.

    onnxruntime ends a run with an error for such an x if the attribute `zeros` is 0.
    """
    no_strings(attributes, "cats_strings")
    categories = np.array(attributes.get("cats_int64s", ()), np.int64)
    x = emit(relax.op.astype(inputs[0], "int64"))
    hits = emit(relax.op.equal(relax.op.expand_dims(x, -1), constant(categories)))
    return relax.op.astype(hits, "float32")


@converts("LabelEncoder", ML)
def label_encoder(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LabelEncoder(x) -> the value of the key that x is, or the default; of numbers."""
    keys, values, default = _mapping(attributes)
    x = inputs[0]
    hits = relax.op.equal(relax.op.expand_dims(x, -1), constant(keys, dtype_of(x)))
    if opset >= _NAN_IS_A_KEY and keys.dtype.kind == "f" and np.isnan(keys).any():
        is_nan = emit(relax.op.isnan(relax.op.expand_dims(x, -1)))
        hits = relax.op.logical_or(emit(hits), relax.op.logical_and(is_nan, constant(np.isnan(keys))))
    matches = emit(relax.op.astype(emit(hits), "int8"))
    number = emit(relax.op.argmax(matches, -1))
    some = emit(relax.op.max(matches, -1))
    value = emit(relax.op.take(constant(values), number, 0, mode="wrap"))
    return relax.op.where(relax.op.greater(some, relax.const(0, "int8")), value, constant(default))


def _mapping(attributes: Attributes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, their values and the default of a LabelEncoder.

    Raises:
        Refusal: some are strings, or there are none.
    """
    no_strings(attributes, "classes_strings", "keys_strings", "values_strings")
    parts = [_given(attributes, part, ("tensor", "int64s", "floats")) for part in ("keys", "values")]
    if any(part is None or part.dtype.kind not in "fiu" for part in parts) or parts[0].size != parts[1].size:
        raise Refusal("keys and values that are no numbers, or not as many of one as of the other")
    keys, values = (part.reshape(-1) for part in parts)
    whole, real = attributes.get("default_int64", -1), attributes.get("default_float", -0.0)
    tensor = attributes.get("default_tensor")
    default = _array(tensor) if tensor is not None else whole if values.dtype.kind == "i" else real
    return keys, values, np.array(default, values.dtype).reshape(())


def _given(attributes: Attributes, part: str, kinds: Sequence[str]) -> Any:
    for kind in kinds:
        value = attributes.get(f"{part}_{kind}")
        if value is not None:
            return _array(value) if kind == "tensor" else np.array(value, np.int64 if kind == "int64s" else np.float32)
    return None


def _array(tensor: Any) -> np.ndarray:
    """A tensor that is an attribute."""
    return np.asarray(numpy_helper.to_array(tensor))
