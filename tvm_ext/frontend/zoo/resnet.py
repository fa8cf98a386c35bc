"""ResNet (He et al., CVPR 2016) as torchvision builds it; nodes and initializers have its names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .builder import GraphBuilder, Value
from .parameters import Parameters
from .sizes import check_sizes

if TYPE_CHECKING:
    import onnx


def resnet18(batch: int = 1, seed: int = 0, weights: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
    """ResNet-18 for ImageNet, 11,689,512 parameters, batch norms unfolded.

    Args:
        batch: images per inference.
        seed: of the random weights.
        weights: a `.safetensors` file of torchvision's state dict, instead of random weights.

    Returns:
        A model from "input" [batch, 3, 224, 224] to "output" [batch, 1000] (logits), float32.

    Raises:
        ModelError: `weights` cannot be read or do not fit; lists the tensors.
    """
    check_sizes(batch=batch)
    g = GraphBuilder("resnet18", Parameters(seed, weights))
    x = g.input("input", (batch, 3, 224, 224))
    x = g.relu(g.batch_norm(g.conv(x, "conv1", 64, kernel=7, stride=2, pad=3), "bn1"), "relu")
    x = g.max_pool(x, "maxpool", kernel=3, stride=2, pad=1)
    for layer, channels in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            stride = 2 if layer > 1 and block == 0 else 1
            x = _basic_block(g, x, f"layer{layer}.{block}", channels, stride)
    x = g.flatten(g.global_average_pool(x, "avgpool"), "flatten")
    return g.build(output=g.linear(x, "fc", 1000))


def _basic_block(g: GraphBuilder, x: Value, name: str, channels: int, stride: int) -> Value:
    """relu(bn2(conv2(relu(bn1(conv1(x))))) + x), with a 1x1 convolution on x where its shape changes."""
    y = g.conv(x, f"{name}.conv1", channels, kernel=3, stride=stride, pad=1)
    y = g.relu(g.batch_norm(y, f"{name}.bn1"), f"{name}.relu")
    y = g.batch_norm(g.conv(y, f"{name}.conv2", channels, kernel=3, pad=1), f"{name}.bn2", scale=(0.3, 0.6))
    if stride != 1 or x.shape[1] != channels:
        x = g.conv(x, f"{name}.downsample.0", channels, kernel=1, stride=stride)
        x = g.batch_norm(x, f"{name}.downsample.1", scale=(0.6, 0.9))
    return g.relu(g.add(y, x, f"{name}.add"), f"{name}.relu")
