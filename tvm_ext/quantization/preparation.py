"""From a user's model to one that can be quantized: float32, of opset 13 or newer, named, folded, with its types."""

from dataclasses import dataclass
from typing import Any

import onnx

from ..core.errors import ModelError, UnsupportedError
from ..frontend.naming import node_labels
from ..frontend.reading.reader import LIMIT, read_model
from ..ops.table import of
from .folding import fold

#: The first opset whose QuantizeLinear and DequantizeLinear take a scale for each channel.
OPSET = 13


@dataclass(frozen=True)
class Prepared:
    """A model before and after folding.

    Attributes:
        name: the file's or the graph's, for messages.
        original: what the user gave, in the opset that is quantized.
        model: folded; this one is quantized.
        notes: what was changed, as sentences.
    """

    name: str
    original: onnx.ModelProto
    model: onnx.ModelProto
    notes: tuple[str, ...]


def prepare(model: Any) -> Prepared:
    """Read, check, upgrade, name and fold a model.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`, which is not changed.

    Raises:
        ModelError: it cannot be read, or is quantized already.
        UnsupportedError: it has 2 GiB or more with its weights, or its opset cannot be upgraded.
    """
    source = read_model(model)
    if source.proto.ByteSize() > LIMIT:
        raise UnsupportedError(
            f"{source.name}: {source.proto.ByteSize()} bytes with its weights, and onnxruntime's tools take 2 GiB",
            fix="quantize its parts one by one",
        )
    _check_float(source.proto, source.name)
    original, notes = _upgraded(source.proto, source.name)
    _weights_are_constants(original)
    for node, label in zip(original.graph.node, node_labels(original.graph.node), strict=True):
        node.name = label
    folded = type(original)()
    folded.CopyFrom(original)
    notes += fold(folded)
    return Prepared(source.name, original, _with_types(folded), tuple(notes))


def _check_float(proto: onnx.ModelProto, name: str) -> None:
    quantized = next((node for node in proto.graph.node if of(node.op_type).int8 == "only"), None)
    if quantized is not None:
        raise ModelError(
            f"{name}: quantized already: node {quantized.name or quantized.output[0]!r} is {quantized.op_type}",
            fix="compile it as it is, or quantize the float32 model that it was made from",
        )


def _upgraded(proto: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, list[str]]:
    """A copy of opset 13 or newer."""
    opset = next((opset.version for opset in proto.opset_import if opset.domain in ("", "ai.onnx")), OPSET)
    if opset >= OPSET:
        copy = type(proto)()
        copy.CopyFrom(proto)
        return copy, []
    try:
        upgraded = onnx.version_converter.convert_version(proto, OPSET)
    except Exception as error:  # the converter is C++, with RuntimeError and worse for whatever it does not know
        raise UnsupportedError(
            f"{name}: opset {opset} has no scales for each channel, and onnx cannot convert it to {OPSET}: {error}",
            fix=f"export the model again with opset {OPSET} or newer",
        ) from error
    return upgraded, [f"opset {opset} was upgraded to {OPSET}, the first with scales for each channel"]


def _weights_are_constants(proto: onnx.ModelProto) -> None:
    """Initializers that are inputs too, as before IR version 4, may be given other values: here they are weights."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    for index in reversed(range(len(proto.graph.input))):
        if proto.graph.input[index].name in weights:
            del proto.graph.input[index]
    proto.ir_version = max(proto.ir_version, 7)  # of opset 13's time; 3 would need the inputs that went


def _with_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except Exception:  # nodes of unknown domains: what has no type is left in float32, and the report says so
        return proto
