"""Small models with free dimensions, and both sessions of them."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from tests.onnx_graphs import model, node, random, value
from tvm_ext import InferenceSession


def affine() -> onnx.ModelProto:
    """y = relu(x w) + b, with `N` rows, and z = -k, with a dimension without a name."""
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("Add", "r b", "y"), node("Neg", "k", "z")]
    inputs = [value("x", ["N", 8]), value("b", ["N", 4]), value("k", [None, 2], TensorProto.INT64)]
    outputs = [value("y", ["N", 4]), value("z", [None, 2], TensorProto.INT64)]
    proto = model(nodes, inputs, outputs, {"w": random(8, 4)})
    proto.producer_name, proto.domain, proto.doc_string, proto.model_version = "tests", "here", "an affine map", 3
    proto.graph.doc_string = "two outputs"
    helper.set_model_props(proto, {"names": "{0: 'cat'}"})
    return proto


def uncompilable(*shape: int | str) -> onnx.ModelProto:
    """The upper triangle of the places where x is not 0: values decide how many there are."""
    nodes = [node("NonZero", "x", "places"), node("Trilu", "places", "y")]
    outputs = [value("y", [len(shape), None], TensorProto.INT64)]
    return model(nodes, [value("x", shape)], outputs)


def feed(rows: int, more: int = 1) -> dict[str, np.ndarray]:
    """Inputs of :func:`affine`."""
    return {"x": random(rows, 8), "b": random(rows, 4), "k": np.arange(2 * more).reshape(more, 2)}


def theirs(proto: onnx.ModelProto, options: Any = None) -> onnxruntime.InferenceSession:
    """onnxruntime's session of a model."""
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def session_of(proto: onnx.ModelProto, sess_options: Any = None, **options: Any) -> InferenceSession:
    """Ours, of one thread, without the cache, and with a program for each set of shapes alone."""
    ours = {"threads": 1, "cache": False, "any_size": False, **options}
    return InferenceSession(proto.SerializeToString(), sess_options, **ours)


def agree(ours: list[Any], reference: list[Any]) -> None:
    """Both have the same outputs."""
    assert len(ours) == len(reference)
    for a, b in zip(ours, reference, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
