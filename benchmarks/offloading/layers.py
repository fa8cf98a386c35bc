"""Layers of ResNet-18 (one image) and BERT base (128 and 384 tokens) as GEMMs; sizes of buffers."""

from collections.abc import Mapping

#: Layer -> batch, m, k, n.
LAYERS: Mapping[str, tuple[int, int, int, int]] = {
    "conv1": (1, 12544, 147, 64),
    "layer1 3x3": (1, 3136, 576, 64),
    "layer2 3x3, stride 2": (1, 784, 576, 128),
    "layer2 downsample": (1, 784, 64, 128),
    "layer2 3x3": (1, 784, 1152, 128),
    "layer3 3x3, stride 2": (1, 196, 1152, 256),
    "layer3 downsample": (1, 196, 128, 256),
    "layer3 3x3": (1, 196, 2304, 256),
    "layer4 3x3, stride 2": (1, 49, 2304, 512),
    "layer4 downsample": (1, 49, 256, 512),
    "layer4 3x3": (1, 49, 4608, 512),
    "fc": (1, 1, 512, 1000),
    "projection, 128": (1, 128, 768, 768),
    "scores, 128": (12, 128, 64, 128),
    "context, 128": (12, 128, 128, 64),
    "feed-forward up, 128": (1, 128, 768, 3072),
    "feed-forward down, 128": (1, 128, 3072, 768),
    "projection, 384": (1, 384, 768, 768),
    "feed-forward up, 384": (1, 384, 768, 3072),
    "feed-forward down, 384": (1, 384, 3072, 768),
}
#: Bytes of scratchpad and of accumulator.
BUFFERS = ((64 << 10, 16 << 10), (256 << 10, 64 << 10), (1 << 20, 256 << 10))
