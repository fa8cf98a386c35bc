"""ResNet (He et al., CVPR 2016) as torchvision builds it; nodes and initializers have its names."""

import math
import os
from collections.abc import Callable, Sequence

import onnx

from .builder import GraphBuilder, Value
from .parameters import Parameters, check_sizes

Range = tuple[float, float]
Block = Callable[[GraphBuilder, Value, str, int, int, Range], Value]
Weights = str | os.PathLike[str] | None


def resnet18(batch: int = 1, seed: int = 0, weights: Weights = None) -> onnx.ModelProto:
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
    return _resnet("resnet18", _basic_block, (2, 2, 2, 2), batch, Parameters(seed, weights))


def resnet34(batch: int = 1, seed: int = 0, weights: Weights = None) -> onnx.ModelProto:
    """ResNet-34 for ImageNet, 21,797,672 parameters, batch norms unfolded.

    Arguments and result as of :func:`resnet18`.
    """
    return _resnet("resnet34", _basic_block, (3, 4, 6, 3), batch, Parameters(seed, weights))


def resnet50(batch: int = 1, seed: int = 0, weights: Weights = None) -> onnx.ModelProto:
    """ResNet-50 v1.5 for ImageNet, 25,557,032 parameters, batch norms unfolded.

    Arguments and result as of :func:`resnet18`. v1.5 has the stride in a bottleneck's 3x3 convolution,
    where the paper has it in the first 1x1.
    """
    return _resnet("resnet50", _bottleneck, (3, 4, 6, 3), batch, Parameters(seed, weights))


def _resnet(name: str, block: Block, blocks: Sequence[int], batch: int, parameters: Parameters) -> onnx.ModelProto:
    (batch,) = check_sizes(batch=batch)
    g = GraphBuilder(name, parameters)
    x = g.input("input", (batch, 3, 224, 224))
    x = g.relu(g.batch_norm(g.conv(x, "conv1", 64, kernel=7, stride=2, pad=3), "bn1"), "relu")
    x = g.max_pool(x, "maxpool", kernel=3, stride=2, pad=1)
    for layer, (count, channels) in enumerate(zip(blocks, (64, 128, 256, 512), strict=True), start=1):
        damping = math.sqrt(2 / count)  # more blocks add up: the variance of their sum stays that of two
        for index in range(count):
            stride = 2 if layer > 1 and index == 0 else 1
            x = block(g, x, f"layer{layer}.{index}", channels, stride, (0.3 * damping, 0.6 * damping))
    x = g.flatten(g.global_average_pool(x, "avgpool"), "flatten")
    return g.build(output=g.linear(x, "fc", 1000))


def _basic_block(g: GraphBuilder, x: Value, name: str, channels: int, stride: int, scale: Range) -> Value:
    """relu(bn2(conv2(relu(bn1(conv1(x))))) + x), with a 1x1 convolution on x where its shape changes."""
    y = g.conv(x, f"{name}.conv1", channels, kernel=3, stride=stride, pad=1)
    y = g.relu(g.batch_norm(y, f"{name}.bn1"), f"{name}.relu")
    y = g.batch_norm(g.conv(y, f"{name}.conv2", channels, kernel=3, pad=1), f"{name}.bn2", scale=scale)
    return _sum(g, x, y, name, stride)


def _bottleneck(g: GraphBuilder, x: Value, name: str, channels: int, stride: int, scale: Range) -> Value:
    """1x1 to fewer channels, 3x3, 1x1 to four times as many; a batch norm after each, and the residual."""
    y = g.relu(g.batch_norm(g.conv(x, f"{name}.conv1", channels, kernel=1), f"{name}.bn1"), f"{name}.relu")
    y = g.conv(y, f"{name}.conv2", channels, kernel=3, stride=stride, pad=1)
    y = g.relu(g.batch_norm(y, f"{name}.bn2"), f"{name}.relu")
    y = g.batch_norm(g.conv(y, f"{name}.conv3", 4 * channels, kernel=1), f"{name}.bn3", scale=scale)
    return _sum(g, x, y, name, stride)


def _sum(g: GraphBuilder, x: Value, y: Value, name: str, stride: int) -> Value:
    """relu(y + x), with a 1x1 convolution on x where its shape is another."""
    if x.shape != y.shape:
        x = g.conv(x, f"{name}.downsample.0", y.shape[1], kernel=1, stride=stride)
        x = g.batch_norm(x, f"{name}.downsample.1", scale=(0.6, 0.9))
    return g.relu(g.add(y, x, f"{name}.add"), f"{name}.relu")
