"""What the tests of the zoo's builders share: shapes of a model's values, and its activations by onnxruntime."""

from collections.abc import Iterable, Mapping

import numpy as np
import onnx

from ..graphs import run_onnxruntime

BN = ("weight", "bias", "running_mean", "running_var")


def bn_shapes(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    """A batch norm's part of a state dict."""
    return {f"{name}.{key}": (channels,) for key in BN}


def initializer_shapes(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Initializers of a model, in its order; all must be float32."""
    assert all(t.data_type == onnx.TensorProto.FLOAT for t in proto.graph.initializer)
    return {t.name: tuple(t.dims) for t in proto.graph.initializer}


def learned_parameters(proto: onnx.ModelProto) -> int:
    """Parameters as papers count them: without running statistics."""
    return sum(int(np.prod(t.dims)) for t in proto.graph.initializer if ".running_" not in t.name)


def shapes_of(values: Iterable[onnx.ValueInfoProto]) -> dict[str, tuple[int, ...]]:
    """Inputs or outputs of a graph."""
    return {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}


def activations(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """The first output, and the outputs of all other float nodes by the node's name."""
    every = onnx.ModelProto()
    every.CopyFrom(proto)
    inner = {n.name: n.output[0] for n in proto.graph.node[:-1] if n.op_type not in ("Constant", "Unsqueeze")}
    every.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in inner.values()
    )
    output, *stages = run_onnxruntime(every, feeds)
    return output, dict(zip(inner, stages, strict=True))
