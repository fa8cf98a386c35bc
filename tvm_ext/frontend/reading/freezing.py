"""Freezing: inputs of a model become initializers of the values that `compile(freeze=...)` gives them.

    Reshape(x, shape), freeze={"shape": [2, -1]}   ->   Reshape(x, [2, -1])

What decides a shape (axes, pads, repeats, k) must be known to compile a program for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import OptionError, UnsupportedError, choose_of
from ...core.settings.frozen import FrozenInput
from .reader import Source
from .shapes import agree, dims_of, text_of

if TYPE_CHECKING:
    import onnx


def frozen_source(source: Source, freeze: Iterable[FrozenInput]) -> Source:
    """The model with some inputs fixed; `source.proto` is left as it is.

    Raises:
        OptionError: a name that is no input, or a value that does not fit it.
        UnsupportedError: an input that is no tensor.
    """
    fixed = tuple(freeze)
    return source.once(("frozen", fixed), lambda: _frozen(source, fixed)) if fixed else source


def _frozen(source: Source, freeze: Sequence[FrozenInput]) -> Source:
    proto = type(source.proto)()
    proto.CopyFrom(source.proto)
    _freeze(proto.graph, {entry.name: entry.array() for entry in freeze}, source.name)
    return source.with_proto(proto)


def _freeze(graph: onnx.GraphProto, values: dict[str, np.ndarray], model: str) -> None:
    from onnx import numpy_helper

    inputs = {value.name: value for value in graph.input}
    for name in values:
        if name not in inputs:
            raise OptionError(f"freeze: {name!r} is no input of {model}", fix=choose_of(name, "inputs", inputs))
    tensors = [numpy_helper.from_array(_fitted(inputs[name], value, model), name) for name, value in values.items()]
    kept = [value for value in graph.input if value.name not in values]
    defaults = [tensor for tensor in graph.initializer if tensor.name not in values]
    del graph.input[:], graph.initializer[:]
    graph.input.extend(kept)
    graph.initializer.extend([*defaults, *tensors])


def _fitted(stated: onnx.ValueInfoProto, value: np.ndarray, model: str) -> np.ndarray:
    """The value in the dtype and shape that the input states; a plain number stands for one element too."""
    import onnx

    if not stated.type.HasField("tensor_type"):
        kind = stated.type.WhichOneof("value") or "value without a type"
        raise UnsupportedError(f"freeze: {stated.name!r} of {model} is a {kind}", fix="only tensors can be frozen")
    dims, dtype = dims_of(stated), onnx.helper.tensor_dtype_to_np_dtype(stated.type.tensor_type.elem_type)
    if value.shape == () and dims is not None and all(d == 1 or not isinstance(d, int) for d in dims):
        value = value.reshape((1,) * len(dims))
    if dims is not None and not agree(dims, value.shape):
        wrong = f"freeze: {stated.name!r} of {model} has shape {text_of(dims)}, not {value.shape}"
        raise OptionError(wrong, fix="give an array of this shape")
    return _cast(value, np.dtype(dtype), f"freeze: {stated.name!r} of {model}")


def _cast(value: np.ndarray, dtype: np.dtype, what: str) -> np.ndarray:
    """The value as another dtype, if it is the same there; floats may round."""
    with np.errstate(all="ignore"):
        cast = value.astype(dtype)
    rounds = value.dtype.kind == "f" and dtype.kind not in "iub"
    if value.dtype != dtype and not rounds and not np.array_equal(cast.astype(value.dtype), value):
        raise OptionError(f"{what} is {dtype}, and {value.dtype} {value.tolist()} is not the same there")
    return cast
