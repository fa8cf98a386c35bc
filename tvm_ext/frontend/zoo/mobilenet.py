"""MobileNetV2 (Sandler et al., CVPR 2018) as torchvision builds it; nodes and initializers have its names."""

import os

import onnx

from .builder import GraphBuilder, Value
from .parameters import Parameters, check_sizes

#: expansion, channels, blocks, stride of the first block (table 2 of the paper)
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(batch: int = 1, seed: int = 0, weights: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
    """MobileNetV2 for ImageNet, width 1.0, 3,504,872 parameters, batch norms unfolded, ReLU6 as Clip.

    Args:
        batch: images per inference.
        seed: of the random weights.
        weights: a `.safetensors` file of torchvision's state dict, instead of random weights.

    Returns:
        A model from "input" [batch, 3, 224, 224] to "output" [batch, 1000] (logits), float32.

    Raises:
        ModelError: `weights` cannot be read or do not fit; lists the tensors.
    """
    (batch,) = check_sizes(batch=batch)
    g = GraphBuilder("mobilenet_v2", Parameters(seed, weights))
    x = _conv_bn_relu6(g, g.input("input", (batch, 3, 224, 224)), "features.0", 32, kernel=3, stride=2)
    number = 1
    for expansion, channels, blocks, stride in STAGES:
        for block in range(blocks):
            x = _inverted_residual(g, x, f"features.{number}", expansion, channels, 1 if block else stride)
            number += 1
    x = _conv_bn_relu6(g, x, f"features.{number}", 1280, kernel=1)
    x = g.flatten(g.global_average_pool(x, "avgpool"), "flatten")
    return g.build(output=g.linear(x, "classifier.1", 1000))


def _inverted_residual(g: GraphBuilder, x: Value, name: str, expansion: int, channels: int, stride: int) -> Value:
    """1x1 to `expansion` times the channels, depthwise 3x3, 1x1 without an activation; x is added if it fits."""
    y, part = x, 0
    if expansion != 1:
        # what a residual sum hands on has no ReLU behind it: its mean square is one, not a half
        y, part = _conv_bn_relu6(g, x, f"{name}.conv.0", expansion * x.shape[1], kernel=1, gain=1.0), 1
    y = _conv_bn_relu6(g, y, f"{name}.conv.{part}", y.shape[1], kernel=3, stride=stride, groups=y.shape[1])
    y = g.conv(y, f"{name}.conv.{part + 1}", channels, kernel=1)
    added = x.shape == y.shape
    y = g.batch_norm(y, f"{name}.conv.{part + 2}", scale=(0.3, 0.6) if added else (0.8, 1.2))
    return g.add(x, y, f"{name}.add") if added else y


def _conv_bn_relu6(
    g: GraphBuilder, x: Value, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1,
    gain: float = 2.0,
) -> Value:  # fmt: skip
    """torchvision's Conv2dNormActivation: "name.0" convolution, "name.1" batch norm, "name.2" ReLU6."""
    y = g.conv(x, f"{name}.0", channels, kernel, stride, (kernel - 1) // 2, groups, gain=gain)
    return g.relu6(g.batch_norm(y, f"{name}.1"), f"{name}.2")
