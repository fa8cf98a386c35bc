"""Compiled models of a few nodes, for tests of types that onnxruntime has no kernels of."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

import tvm_ext

from ..graphs import model, value


def proto_of(
    nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, np.ndarray], outputs: Mapping[str, str], opset: int,
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A model whose inputs are of the types of `feeds`.

    Args:
        outputs: name -> dtype.
        weights: of these names initializers, not inputs.
    """
    inputs = [value(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in feeds.items()]
    stated = [value(n, None, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))) for n, dtype in outputs.items()]
    return model(nodes, inputs, stated, weights, opset)


def compiled(
    nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, np.ndarray], outputs: Mapping[str, str], opset: int,
    weights: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """What the compiled model makes, of the types stated."""
    results = tvm_ext.compile(proto_of(nodes, feeds, outputs, opset, weights), cache=False).run(dict(feeds))
    assert {name: str(results[name].dtype) for name in outputs} == dict(outputs)
    return results
