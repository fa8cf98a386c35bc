"""Random graphs between QuantizeLinear and DequantizeLinear, as quantizers and quantization-aware training write them.

A graph is drawn in float32, run once by onnxruntime for its ranges, and then quantized: every weight by channel or by
tensor, every bias to int32, and most values between operators by a pair of nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs

Shape = tuple[int, ...]
#: Operators whose float32 result is exact for numbers of a few bits, in whatever order they sum.
EXACT = ("conv", "depthwise", "relu", "clip", "leaky_relu", "add", "concat", "max_pool", "transpose", "nearest", "pad",
         "slice", "split", "reshape", "average_of_4")  # fmt: skip
INEXACT = ("sigmoid", "silu", "average_pool", "linear", "softmax", "gate", "layer_norm")


@dataclass
class Draft:
    """A graph in float32 while it is drawn.

    Attributes:
        rng: what draws it.
        exact: whether all arithmetic between stored values must be exact.
        nodes, weights: of the graph.
        stored: names of values that get a pair of nodes.
        shapes: of all values.
        weighted: weights that are quantized -> axis of their output channels.
        biases: bias -> (data, weight) of its operator.
    """

    rng: np.random.Generator
    exact: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    weighted: dict[str, int] = field(default_factory=dict)
    biases: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, op_type: str, inputs: list[str], shape: Shape, outputs: int = 1, **attributes: Any) -> str:
        """A node; returns its first output, which is stored in 8 bits most of the time."""
        names = [f"v{len(self.nodes)}{'abc'[i] if outputs > 1 else ''}" for i in range(outputs)]
        self.nodes.append(node(op_type, " ".join(inputs), " ".join(names), **attributes))
        for name in names:
            self.shapes[name] = shape
            if self.exact or self.rng.random() < 0.8:
                self.stored.append(name)
        return names[0]

    def constant(self, array: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def weight(self, shape: Shape, axis: int) -> str:
        name = self.constant(self.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32))
        self.weighted[name] = axis
        return name

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))


def _conv(d: Draft, x: str) -> str:
    _, channels, h, w = d.shapes[x]
    filters, k, stride = d.size(1, 19), d.pick(1, 3, 3, 5), d.pick(1, 1, 2)
    weight = d.weight((filters, channels, k, k), 0)
    inputs = [x, weight]
    if d.rng.random() < 0.7:
        inputs.append(d.constant(d.rng.normal(0, 1, filters).astype(np.float32)))
        d.biases[inputs[2]] = (x, weight)
    pad = k // 2
    out = ((h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
    return d.add("Conv", inputs, (1, filters, *out), pads=[pad] * 4, strides=[stride] * 2)


def _depthwise(d: Draft, x: str) -> str:
    shape = d.shapes[x]
    return d.add("Conv", [x, d.weight((shape[1], 1, 3, 3), 0)], shape, pads=[1] * 4, group=shape[1])


def _same(op_type: str, **attributes: Any) -> Callable[[Draft, str], str]:
    return lambda d, x: d.add(op_type, [x], d.shapes[x], **attributes)


def _clip(d: Draft, x: str) -> str:
    low, high = (d.constant(np.float32(v)) for v in d.pick((0, 6), (-1, 1), (0, 2)))
    return d.add("Clip", [x, low, high], d.shapes[x])


def _silu(d: Draft, x: str) -> str:
    return d.add("Mul", [x, d.add("Sigmoid", [x], d.shapes[x])], d.shapes[x])


def _add(d: Draft, x: str) -> str:
    others = [name for name, shape in d.shapes.items() if shape == d.shapes[x]]
    return d.add("Add", [x, d.pick(*others)], d.shapes[x])


def _concat(d: Draft, x: str) -> str:
    n, _, h, w = d.shapes[x]
    fitting = [name for name, s in d.shapes.items() if len(s) == 4 and s[2:] == (h, w) and s[1] < 24]
    parts = [x, d.pick(*fitting, x)]
    return d.add("Concat", parts, (n, sum(d.shapes[p][1] for p in parts), h, w), axis=1)


def _pool(op_type: str, k: int, **attributes: Any) -> Callable[[Draft, str], str]:
    def make(d: Draft, x: str) -> str:
        n, c, h, w = d.shapes[x]
        pad, stride = (1, d.pick(1, 2)) if k == 3 else (0, 2)
        out = ((h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
        if min(out) < 1:
            return x
        return d.add(op_type, [x], (n, c, *out), kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4)

    return make


def _transpose(d: Draft, x: str) -> str:
    n, c, h, w = d.shapes[x]
    return d.add("Transpose", [x], (n, c, w, h), perm=[0, 1, 3, 2])


def _reshape(d: Draft, x: str) -> str:
    n, c, h, w = d.shapes[x]
    return d.add("Reshape", [x, d.constant(np.array([n, c, w, h]))], (n, c, w, h))


def _resize(mode: str) -> Callable[[Draft, str], str]:
    def make(d: Draft, x: str) -> str:
        n, c, h, w = d.shapes[x]
        if h * w > 150:
            return x
        sizes = d.constant(np.array([n, c, 2 * h, 2 * w]))
        more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
        return d.add("Resize", [x, "", "", sizes], (n, c, 2 * h, 2 * w), mode=mode, **more)

    return make


def _pad(d: Draft, x: str) -> str:
    n, c, h, w = d.shapes[x]
    return d.add("Pad", [x, d.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2]))], (n, c, h + 1, w + 2))


def _slice(d: Draft, x: str) -> str:
    n, c, h, w = d.shapes[x]
    if h < 3:
        return x
    bounds = [d.constant(np.array([v])) for v in (1, h, 2)]
    return d.add("Slice", [x, *bounds], (n, c, h - 1, w))


def _split(d: Draft, x: str) -> str:
    n, c, h, w = d.shapes[x]
    if c % 2:
        return x
    first = d.add("Split", [x], (n, c // 2, h, w), outputs=2, axis=1)
    return d.add("Add", [first, f"{first[:-1]}b"], (n, c // 2, h, w))


def _gate(d: Draft, x: str) -> str:
    """Squeeze and excitation."""
    n, c, *_ = d.shapes[x]
    squeezed = d.add("GlobalAveragePool", [x], (n, c, 1, 1))
    mixed = d.add("Conv", [squeezed, d.weight((c, c, 1, 1), 0)], (n, c, 1, 1))
    return d.add("Mul", [x, d.add("Sigmoid", [mixed], (n, c, 1, 1))], d.shapes[x])


def _layer_norm(d: Draft, x: str) -> str:
    width = d.shapes[x][-1]
    gain, shift = (d.constant(d.rng.normal(m, 0.2, width).astype(np.float32)) for m in (1, 0))
    return d.add("LayerNormalization", [x, gain, shift], d.shapes[x], axis=-1)


MAKERS: dict[str, Callable[[Draft, str], str]] = {
    "conv": _conv, "depthwise": _depthwise, "relu": _same("Relu"), "clip": _clip,
    "leaky_relu": _same("LeakyRelu", alpha=0.25), "add": _add, "concat": _concat, "max_pool": _pool("MaxPool", 3),
    "transpose": _transpose, "nearest": _resize("nearest"), "pad": _pad, "slice": _slice, "split": _split,
    "reshape": _reshape, "average_of_4": _pool("AveragePool", 2), "sigmoid": _same("Sigmoid"), "silu": _silu,
    "average_pool": _pool("AveragePool", 3), "linear": _resize("linear"), "softmax": _same("Softmax", axis=1),
    "gate": _gate, "layer_norm": _layer_norm,
}  # fmt: skip


def _head(d: Draft, x: str) -> str:
    """Flatten and one product, as MatMul or as Gemm."""
    depth, columns = int(np.prod(d.shapes[x])), d.size(1, 20)
    flat = d.add("Flatten", [x], (1, depth))
    if d.rng.random() < 0.5:
        return d.add("MatMul", [flat, d.weight((depth, columns), 1)], (1, columns))
    weight = d.weight((columns, depth), 0)
    bias = d.constant(d.rng.normal(0, 1, columns).astype(np.float32))
    d.biases[bias] = (flat, weight)
    return d.add("Gemm", [flat, weight, bias], (1, columns), transB=1)


def draw(seed: int, exact: bool = False, steps: int = 7) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A quantized model of one image, and the image."""
    rng = np.random.default_rng([seed, exact])
    shape = (1, int(rng.integers(1, 17)), int(rng.integers(5, 14)), int(rng.integers(5, 14)))
    d = Draft(rng, exact, shapes={"x": shape}, stored=["x"])
    kinds = EXACT if exact else (*EXACT, *INEXACT)
    last = _conv(d, "x")
    for _ in range(steps):
        name = d.pick(*kinds, "conv", "conv", "add")
        if np.prod(d.shapes[last]) > 20_000 or (name == "concat" and d.shapes[last][1] > 30):
            continue
        last = MAKERS[name](d, last)
    if np.prod(d.shapes[last]) < (400 if exact else 3000):
        last = _head(d, last)
    d.stored = list(dict.fromkeys([*d.stored, last]))
    image = rng.normal(0, 1, shape).astype(np.float32)
    return _quantized(d, last, image), {"x": image}


# ------------------------------------------------------------ quantization
def _ranges(d: Draft, image: np.ndarray) -> dict[str, tuple[float, float]]:
    names = [name for name in d.shapes if name != "x"]
    proto = _model(d.nodes, image.shape, [value(name, None) for name in names], d.weights)
    arrays = {"x": image, **onnxruntime_outputs(proto, {"x": image})}
    return {name: (float(a.min()), float(a.max())) for name, a in arrays.items()}


def _quantized(d: Draft, output: str, image: np.ndarray) -> onnx.ModelProto:
    """The draft with pairs of nodes at its stored values, and with quantized weights."""
    ranges, pairs, weights = _ranges(d, image), _Pairs(d), {}
    for name in d.weights:
        if name not in d.weighted and name not in d.biases:
            weights[name] = d.weights[name]
    pairs.weights = weights
    pairs.store("x", ranges["x"])
    for name in d.weighted:
        pairs.store_weight(name)
    for maker in d.nodes:
        inputs = [pairs.names.get(name, name) for name in maker.input]
        for k, name in enumerate(maker.input):
            if name in d.biases:
                inputs[k] = pairs.store_bias(name)
        copy = onnx.NodeProto()
        copy.CopyFrom(maker)
        copy.input[:] = inputs
        pairs.nodes.append(copy)
        for name in maker.output:
            if name in d.stored:
                pairs.store(name, ranges[name])
    pairs.nodes.append(node("Identity", pairs.names[output], "y"))
    return _model(pairs.nodes, image.shape, [value("y", None)], pairs.weights)


class _Pairs:
    def __init__(self, d: Draft) -> None:
        self.d, self.nodes = d, list[onnx.NodeProto]()
        self.names: dict[str, str] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.scales: dict[str, np.ndarray] = {}

    def _scale(self, numbers: Any) -> np.ndarray:
        exact = np.asarray(numbers, np.float32)
        return np.float32(2.0) ** np.ceil(np.log2(exact)) if self.d.exact else exact

    def store(self, name: str, span: tuple[float, float]) -> None:
        """QuantizeLinear and DequantizeLinear behind a value; a part of its range may be cut off."""
        low, high = min(span[0], 0.0), max(span[1], 0.0, span[0] + 1e-3)
        scale = self._scale((high - low) / 255 * self.d.rng.uniform(0.7, 1.1))
        dtype = self.d.pick("uint8", "uint8", "int8")
        info = np.iinfo(dtype)
        zero = np.clip(np.rint(info.min - low / scale), info.min, info.max).astype(dtype)
        self.scales[name] = scale
        self.weights |= {f"{name}_s": scale, f"{name}_z": np.asarray(zero)}
        self.nodes.append(node("QuantizeLinear", f"{name} {name}_s {name}_z", f"{name}_q"))
        self.nodes.append(node("DequantizeLinear", f"{name}_q {name}_s {name}_z", f"{name}_d"))
        self.names[name] = f"{name}_d"

    def store_weight(self, name: str) -> None:
        """DequantizeLinear of an integer weight, by channel or by tensor, signed or not."""
        w, axis = self.d.weights[name], self.d.weighted[name]
        rest = tuple(i for i in range(w.ndim) if i != axis)
        per_channel, unsigned = self.d.rng.random() < 0.6, self.d.rng.random() < 0.2
        limit = np.abs(w).max(axis=rest) + 1e-6 if per_channel else np.abs(w).max() + 1e-6
        scale = self._scale(limit / 127)
        along = scale.reshape([-1 if i == axis else 1 for i in range(w.ndim)]) if per_channel else scale
        whole = np.clip(np.rint(w / along), -127, 127).astype(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        if unsigned:
            whole, zero = (whole.astype(np.int16) + 128).astype(np.uint8), np.full(scale.shape, 128, np.uint8)
        self.scales[name] = scale
        self.weights |= {f"{name}_q": whole, f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": zero}
        self.nodes.append(node("DequantizeLinear", f"{name}_q {name}_s {name}_z", f"{name}_d", axis=axis))
        self.names[name] = f"{name}_d"

    def store_bias(self, name: str) -> str:
        """A bias of int32 in the scale of its products; one of a float operand stays float."""
        data, weight = self.d.biases[name]
        bias = self.d.weights[name]
        if data not in self.scales:
            self.weights[name] = bias
            return name
        scale = np.broadcast_to(self.scales[data] * self.scales[weight], bias.shape).astype(np.float32)
        whole = np.rint(bias / scale).astype(np.int32)
        self.weights |= {f"{name}_q": whole, f"{name}_s": scale, f"{name}_z": np.zeros(bias.shape, np.int32)}
        self.nodes.append(node("DequantizeLinear", f"{name}_q {name}_s {name}_z", f"{name}_d", axis=0))
        return f"{name}_d"


def _model(nodes: list[Any], shape: Shape, outputs: list[Any], weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    used = {name for n in nodes for name in n.input}
    return model(nodes, [value("x", shape)], outputs, {name: a for name, a in weights.items() if name in used})
