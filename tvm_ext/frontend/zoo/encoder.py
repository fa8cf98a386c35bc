"""A BERT encoder (Devlin et al., NAACL 2019) as Hugging Face's BertEncoder is exported; initializers have its names."""

import math
import os

import numpy as np
import onnx
from onnx import TensorProto

from ...core.errors import OptionError
from .builder import GraphBuilder, Value
from .parameters import Parameters, check_sizes


def bert(
    batch: int = 1, seed: int = 0, layers: int = 1, sequence: int = 128, hidden: int = 768, heads: int = 12,
    intermediate: int = 3072, mask: bool = False, weights: str | os.PathLike[str] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """BERT encoder layers of BERT-base's size, from embeddings to hidden states.

    Linear layers are MatMul and Add, the gelu is x (1 + erf(x / sqrt 2)) / 2, layer norms are LayerNormalization:
    what torch's exporter writes. A weight "encoder.layer.0.output.dense.weight" [hidden, intermediate] stands in the
    file transposed, as "encoder.layer.0.output.dense.weight^T".

    Args:
        batch: sequences per inference.
        seed: of the random weights.
        layers: encoder layers.
        sequence: tokens of a sequence.
        hidden: width of an embedding; a multiple of `heads`.
        heads: attention heads.
        intermediate: width of the feed-forward layer.
        mask: add an input "attention_mask" [batch, sequence], int64: 1 for tokens, 0 for padding.
        weights: a `.safetensors` file of the encoder's state dict ("encoder.layer.0...."), instead of random weights.

    Returns:
        A model from "input" [batch, sequence, hidden] to "output" of that shape, float32.

    Raises:
        OptionError: a size below 1, or heads that do not divide the width.
        ModelError: `weights` cannot be read or do not fit; lists the tensors.
    """
    batch, layers, sequence, hidden, heads, intermediate = check_sizes(
        batch=batch, layers=layers, sequence=sequence, hidden=hidden, heads=heads, intermediate=intermediate
    )
    if hidden % heads:
        raise OptionError(f"hidden={hidden}: not a multiple of heads={heads}", fix=f"hidden={hidden // heads * heads}")
    g = GraphBuilder("bert", Parameters(seed, weights))
    x = g.input("input", (batch, sequence, hidden))
    penalty = _penalty(g, g.input("attention_mask", (batch, sequence), "int64")) if mask else None
    for layer in range(layers):
        x = _encoder_layer(g, x, f"encoder.layer.{layer}", heads, intermediate, penalty)
    return g.build(output=x)


def _penalty(g: GraphBuilder, mask: Value) -> Value:
    """[batch, sequence] of ones and zeros -> [batch, 1, 1, sequence]: 0 for tokens, the least float32 for padding."""
    batch, sequence = mask.shape
    axes = g.constant((1, 2))
    y = g.node("Unsqueeze", "mask/Unsqueeze", [mask.name, axes.name], (batch, 1, 1, sequence))
    y = g.node("Cast", "mask/Cast", [y.name], y.shape, to=TensorProto.FLOAT)
    y = g.binary("Sub", "mask/Sub", g.constant(1.0), y)
    return g.binary("Mul", "mask/Mul", y, g.constant(float(np.finfo(np.float32).min)))


def _encoder_layer(g: GraphBuilder, x: Value, name: str, heads: int, intermediate: int, penalty: Value | None) -> Value:
    """norm(x + attention(x)), then norm of that + feed-forward of that."""
    y = _attention(g, x, f"{name}.attention.self", heads, penalty)
    y = g.projection(y, f"{name}.attention.output.dense", x.shape[-1])
    x = g.layer_norm(g.add(y, x, f"{name}.attention.output/Add"), f"{name}.attention.output.LayerNorm")
    y = g.projection(x, f"{name}.intermediate.dense", intermediate)
    y = _gelu(g, y, f"{name}.intermediate.intermediate_act_fn")
    y = g.projection(y, f"{name}.output.dense", x.shape[-1], gain=2.0)
    return g.layer_norm(g.add(y, x, f"{name}.output/Add"), f"{name}.output.LayerNorm")


def _attention(g: GraphBuilder, x: Value, name: str, heads: int, penalty: Value | None) -> Value:
    """softmax(Q K^T / sqrt(width of a head) + penalty) V, head by head: [N, S, H] -> [N, S, H]."""
    batch, sequence, hidden = x.shape
    width = hidden // heads

    def split(part: str, axes: tuple[int, ...]) -> Value:
        y = g.projection(x, f"{name}.{part}", hidden)
        y = g.reshape(y, f"{name}.{part}/Reshape", (batch, sequence, heads, width))
        return g.transpose(y, f"{name}.{part}/Transpose", axes)

    query, key, value = split("query", (0, 2, 1, 3)), split("key", (0, 2, 3, 1)), split("value", (0, 2, 1, 3))
    scores = g.binary("Div", f"{name}/Div", g.matmul(query, key, f"{name}/MatMul"), g.constant(math.sqrt(width)))
    if penalty is not None:
        scores = g.binary("Add", f"{name}/Add", scores, penalty)
    context = g.matmul(g.softmax(scores, f"{name}/Softmax"), value, f"{name}/MatMul")
    return g.reshape(g.transpose(context, f"{name}/Transpose", (0, 2, 1, 3)), f"{name}/Reshape", x.shape)


def _gelu(g: GraphBuilder, x: Value, name: str) -> Value:
    """x (erf(x / sqrt 2) + 1) / 2, in the five nodes that exporters write."""
    y = g.binary("Div", f"{name}/Div", x, g.constant(math.sqrt(2.0)))
    y = g.node("Erf", f"{name}/Erf", [y.name], y.shape)
    y = g.binary("Add", f"{name}/Add", y, g.constant(1.0))
    return g.binary("Mul", f"{name}/Mul", g.binary("Mul", f"{name}/Mul", x, y), g.constant(0.5))
