"""Values by type and by name: of attributes, of inputs that decide a shape, and of what is computed on."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tvm_ext.frontend.checks.attributes import FLAGS, NAMES

from .shapes import Shape, Sizes

Onnx = onnx.TensorProto


@dataclass
class Node:
    """What is drawn of a node so far.

    Attributes:
        operator: its name.
        shapes: of its inputs; those that decide a shape are drawn with their values.
        sizes: the letters of these shapes.
        attributes: name -> value.
        axes: how many axes inputs such as `starts` are about.
    """

    operator: str
    rng: random.Random
    shapes: list[Shape]
    sizes: Sizes
    attributes: dict[str, Any] = field(default_factory=dict)
    axes: int = 1

    @property
    def first(self) -> Shape:
        return self.shapes[0] if self.shapes else ()

    @property
    def rank(self) -> int:
        return len(self.first)

    @property
    def spatial(self) -> int:
        return max(self.rank - 2, 0)

    def subset(self, of: int) -> list[int]:
        """Some of so many axes, in any order, some from behind."""
        axes = self.rng.sample(range(of), min(self.axes, of))
        return [a - of if self.rng.random() < 0.3 else a for a in axes]

    def along(self, default: int = 0) -> int:
        """Elements along the node's axis."""
        axis = self.attributes.get("axis", default)
        return self.first[axis] if -self.rank <= axis < self.rank else 1

    def each(self, low: int, high: int, count: int) -> list[int]:
        return [self.rng.randint(low, high) for _ in range(count)]


# ------------------------------------------------------------ attributes
_MORE_FLAGS = ("antialias", "broadcast", "spatial", "zeros", "detect_negative", "detect_positive")
_FLOATS = {
    "epsilon": (1e-5, 1e-3, 0.1), "alpha": (0.1, 0.5, 1.0, 2.0), "beta": (0.1, 0.75, 1.0), "gamma": (0.5, 1.05),
    "bias": (0.0, 0.5, 1.0, 2.0), "lambd": (0.1, 0.5), "clip": (0.5, 3.0), "max": (0.5, 6.0), "min": (-1.0, 0.0),
    "softcap": (0.0, 1.5), "scale": (0.25, 1.0), "spatial_scale": (1.0, 0.5), "threshold": (0.0, 0.5),
    "cubic_coeff_a": (-0.75, -0.5), "extrapolation_value": (0.0, 2.5), "ratio": (0.0, 0.5), "value": (0.0, -1.5),
    "momentum": (0.9, 0.5), "activation_alpha": (0.3,), "activation_beta": (0.6,), "default_float": (-1.0, 0.5),
}  # fmt: skip
#: Text beside that of `tvm_ext.frontend.checks.attributes`, by operator and name or by name.
_WORDS = {
    **NAMES, "direction": "LEFT RIGHT", "reduction": "none add mul min max", "approximate": "none tanh",
    "norm": "MAX L1 L2", "TfIdfVectorizer.mode": "TF IDF TFIDF",
    "NegativeLogLikelihoodLoss.reduction": "none sum mean", "SoftmaxCrossEntropyLoss.reduction": "none sum mean",
    "microsoft.CDist.metric": "euclidean sqeuclidean", "microsoft.GridSample.mode": "bilinear nearest bicubic",
    **dict.fromkeys(("microsoft.FusedConv.activation", "microsoft.FusedGemm.activation"), "Relu Sigmoid Tanh"),
    "post_transform": "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO", "activation": "none silu swish",
    "microsoft.GatedRMSNorm.activation": "silu sigmoid",
    "round_mode": "up down nearest", "update_rule": "linear gated delta gated_delta",
}  # fmt: skip
_EQUATIONS = {
    2: ("ij,jk->ik", "ij,jk", "ij,jk->", "ij,ij->ji", "...j,jk->...k", "ij,ij->i"),
    1: ("...i->...", "...ij->...ji", "...ii->...i"),
}
#: Of states that are quantized: nobody says what infinity becomes.
_BOUNDED = ("Sigmoid", "Tanh", "Softsign", "HardSigmoid")
_GATES = ("Sigmoid", "Tanh", "Relu", "Softsign", "HardSigmoid", "Elu")


def _padded(n: Node) -> list[int]:
    """Less than the window, as onnxruntime asks for."""
    window = n.attributes.get("kernel_shape") or n.sizes.letters.get("K") or [1] * n.spatial
    return [n.rng.randint(0, min(2, k - 1)) for k in (*window, *window)]


def _kinds(n: Node, allowed: set[str]) -> int:
    return n.rng.choice(sorted(i for name, i in ONNX_TYPES.items() if name in allowed)) if allowed else 1


_NAMED: dict[str, Callable[[Node], Any]] = {
    "axis": lambda n: n.rng.randint(-n.rank, max(n.rank - 1, 0)), "axes": lambda n: n.subset(n.rank),
    "perm": lambda n: n.rng.sample(range(n.rank), n.rank),
    "kernel_shape": lambda n: list(n.sizes.letters.get("K", n.each(1, 3, n.spatial))),
    "strides": lambda n: n.each(1, 3, n.spatial), "dilations": lambda n: n.each(1, 2, n.spatial), "pads": _padded,
    "output_padding": lambda n: n.each(0, 1, n.spatial), "group": lambda n: n.sizes.of("g"),
    "num_groups": lambda n: n.sizes.of("g"), "blocksize": lambda n: n.sizes.of("b"),
    "hidden_size": lambda n: n.sizes.of("h"), "block_size": lambda n: n.rng.choice((0, 1, 2)),
    "batch_dims": lambda n: int(n.shapes[0][:1] == n.shapes[1][:1] and n.rng.random() < 0.5),
    "batch_axis": lambda n: n.rng.choice((0, 1)),
    "time_axis": lambda n: n.rng.choice((0, 1)), "num_outputs": lambda n: n.rng.choice((1, 2, 3)),
    "p": lambda n: n.rng.choice((1, 2, 3)), "k": lambda n: n.rng.choice((-2, -1, 0, 1, 2)),
    "size": lambda n: n.rng.choice((1, 3, 5)), "equation": lambda n: n.rng.choice(_EQUATIONS[min(len(n.shapes), 2)]),
    "LpNormalization.p": lambda n: n.rng.choice((1, 2)),
    "RNN.activations": lambda n: n.rng.choices(_GATES, k=n.sizes.of("D")),
    "GRU.activations": lambda n: n.rng.choices(_GATES, k=2 * n.sizes.of("D")),
    "microsoft.DynamicQuantizeLSTM.activations": lambda n: n.rng.choices(_BOUNDED, k=3 * n.sizes.of("D")),
    "LSTM.activations": lambda n: n.rng.choices(_GATES, k=3 * n.sizes.of("D")),
    "activation_alpha": lambda n: [0.3] * n.sizes.of("D"), "activation_beta": lambda n: [0.6] * n.sizes.of("D"),
    "output_shape": lambda n: n.each(3, 9, n.spatial), "pooled_shape": lambda n: [2, 3],
    "start": lambda n: n.rng.randint(-3, 3), "end": lambda n: n.rng.randint(-3, 5),
    "starts": lambda n: n.each(-3, 2, n.rank), "ends": lambda n: n.each(-1, 9, n.rank),
    "shape": lambda n: n.each(0, 3, 2), "split": lambda n: _parts(n),
    "scales": lambda n: [1.0, 1.0] + [n.rng.choice((1.0, 2.0))] * n.spatial, "repeats": lambda n: n.each(1, 2, n.rank),
    "output_height": lambda n: n.rng.choice((1, 2, 5)), "output_width": lambda n: n.rng.choice((1, 3)),
    "sampling_ratio": lambda n: n.rng.choice((0, 1, 2)), "min_gram_length": lambda n: 1,
    "max_gram_length": lambda n: n.rng.choice((1, 2)), "max_skip_count": lambda n: n.rng.choice((0, 1, 3)),
    "ngram_counts": lambda n: [0, 2], "ngram_indexes": lambda n: [1, 0, 2], "pool_int64s": lambda n: [1, 2, 1, 3],
    "weights": lambda n: [0.5, 1.0, 2.0], "seed": lambda n: 3, "opset": lambda n: 13,
    "num_heads": lambda n: n.sizes.of("h"), "unidirectional": lambda n: n.rng.randint(0, 1),
    "channels_last": lambda n: int("S" in n.sizes.letters and n.first[1:-1] == n.sizes.letters["S"]),
    "microsoft.MatMulNBits.K": lambda n: n.first[-1], "microsoft.MatMulNBits.N": lambda n: n.shapes[1][0],
    "microsoft.MatMulNBits.block_size": lambda n: 32, "accuracy_level": lambda n: 0, "mask_index_type": lambda n: 0,
    "bits": lambda n: 4,
    "dim": lambda n: n.rng.randint(-n.rank, n.rank - 1), "step": lambda n: n.rng.choice((1, 2, 3)),
    "microsoft.UnfoldTensor.size": lambda n: n.rng.choice((1, 2, 3)),
    "to": lambda n: 1, "ignore_index": lambda n: n.rng.choice((-1, 0, 1)),
    "rotary_embedding_dim": lambda n: n.rng.choice((0, 2)), "bit_width": lambda n: 8,
    "qk_matmul_output_mode": lambda n: n.rng.randint(0, 3), "offset": lambda n: [0.5] * (n.first or (1,))[-1],
    "Scaler.scale": lambda n: [2.0] * (n.first or (1,))[-1],
    "coefficients": lambda n: [0.5] * 2 * (n.first or (1,))[-1], "intercepts": lambda n: [0.1, -0.2],
    "classlabels_ints": lambda n: [3, 5], "targets": lambda n: 2, "imputed_value_floats": lambda n: [0.5],
    "imputed_value_int64s": lambda n: [7], "replaced_value_float": lambda n: 0.0,
    "inputdimensions": lambda n: [s[-1] for s in n.shapes if s], "cats_int64s": lambda n: [0, 1, 3],
    "keys_int64s": lambda n: [0, 1, 2], "values_int64s": lambda n: [5, 6, 7], "keys_floats": lambda n: [0.0, 1.0, 2.0],
    "values_floats": lambda n: [0.5, 1.5, 2.5], "default_int64": lambda n: -5, "replaced_value_int64": lambda n: 0,
    "left_window_size": lambda n: n.rng.choice((-1, 0, 1)), "right_window_size": lambda n: n.rng.choice((-1, 0, 1)),
    "chunk_size": lambda n: 2, "offset_group": lambda n: 1, "value_int": lambda n: 4,
    "value_ints": lambda n: [1, -2, 3], "value_float": lambda n: 0.5, "value_floats": lambda n: [0.5, float("inf")],
    "q_num_heads": lambda n: n.sizes.of("h"), "kv_num_heads": lambda n: n.sizes.of("h"),
}  # fmt: skip
#: Attributes that hold a dtype -> the input or output whose types they may name.
_DTYPES = ("to", "dtype", "output_dtype", "stash_type", "output_datatype", "softmax_precision", "precision")
_NO_NUMBERS = ("UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128")
ONNX_TYPES = {f"tensor({name.lower()})": number for name, number in Onnx.DataType.items() if name not in _NO_NUMBERS}


def attribute(n: Node, schema: Any, name: str) -> Any:
    """A value for an attribute; None for one that nothing is known of."""
    kind = schema.attributes[name].type.name
    if words := _WORDS.get(f"{n.operator}.{name}", _WORDS.get(name) if kind == "STRING" else None):
        choices = words.split()
        if n.operator in ("LSTM", "GRU", "RNN", "microsoft.DynamicQuantizeLSTM"):
            choices = ["bidirectional"] if n.sizes.of("D") == 2 else ["forward", "reverse"]
        return n.rng.choice(choices)
    if name in _DTYPES and kind == "INT":
        allowed = {"tensor(float)", "tensor(double)"}
        return _kinds(n, allowed if "stash" in name or "prec" in name else set(schema.outputs[0].types))
    make = _NAMED.get(f"{n.operator}.{name}", _NAMED.get(name))
    if name in (*FLAGS, *_MORE_FLAGS) and kind == "INT":
        return n.rng.randint(0, 1)
    if kind == "FLOAT" and name in _FLOATS:
        return n.rng.choice(_FLOATS[name])
    if kind == "TENSOR":
        return onnx.numpy_helper.from_array(tensor(n, n.rng.choice(_TENSORS), (1,)))
    if make is None:
        return None
    return make(n)


_TENSORS = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool", "int8", "uint64")


# ------------------------------------------------------------ inputs that decide a shape
def _parts(n: Node) -> list[int]:
    """Lengths of the parts of an axis."""
    whole, count = n.along(), n.rng.randint(1, 3)
    at = sorted(n.rng.randint(0, whole) for _ in range(count - 1))
    return [b - a for a, b in zip([0, *at], [*at, whole], strict=True)]


def _reshaped(n: Node) -> list[int]:
    dims = list(n.first)
    n.rng.shuffle(dims)
    while len(dims) > 1 and n.rng.random() < 0.5:
        dims[:2] = [dims[0] * dims[1]]
    if dims and n.rng.random() < 0.4:
        dims[n.rng.randrange(len(dims))] = -1
    return dims


def _expanded(n: Node) -> list[int]:
    wide = [n.rng.choice((1, 3, 5)) if d == 1 else n.rng.choice((1, d)) for d in n.first]
    return n.each(1, 3, n.rng.randint(0, 1)) + wide


#: "Operator.input" or "input" -> its value; what decides a shape is an initializer in most graphs.
DECIDING: Mapping[str, Callable[[Node], Any]] = {
    "axes": lambda n: n.subset(n.rank), "axis": lambda n: n.rng.randint(-n.rank, max(n.rank - 1, 0)),
    "Reshape.shape": _reshaped, "Expand.shape": _expanded, "Unsqueeze.axes": lambda n: n.subset(n.rank + n.axes),
    "ConstantOfShape.input": lambda n: n.each(0, 4, n.rng.randint(0, 3)), "shape": lambda n: n.each(1, 9, n.axes),
    "starts": lambda n: n.each(-9, 5, n.axes),
    "ends": lambda n: [n.rng.choice((-1, 1, 2, 3, 7, 2**31 - 1, -(2**31), 2**63 - 1)) for _ in range(n.axes)],
    "steps": lambda n: [n.rng.choice((1, 1, 2, 3, -1, -2)) for _ in range(n.axes)],
    "repeats": lambda n: n.each(0, 3, n.rank),
    "pads": lambda n: n.each(-1, 3, 2 * (n.axes if len(n.shapes) > 3 and n.shapes[3] else n.rank)),
    "TopK.K": lambda n: [n.rng.randint(0, n.along(-1))], "split": _parts, "sizes": lambda n: n.each(1, 9, n.rank),
    "scales": lambda n: [n.rng.choice((0.5, 1.0, 1.0, 2.0, 1.5)) for _ in range(n.rank)],
    "roi": lambda n: [0.0] * n.rank + [1.0] * n.rank, "depth": lambda n: n.rng.randint(1, 9),
    "size": lambda n: n.rng.randint(0, 17), "start": lambda n: n.rng.randint(-4, 4),
    "limit": lambda n: n.rng.randint(-4, 20), "delta": lambda n: n.rng.choice((-2, -1, 1, 2, 3)),
    "image_shape": lambda n: [5, 5], "block_shape": lambda n: [n.sizes.of("k"), 1],
    "dft_length": lambda n: n.rng.choice((3, 4, 5, 8)), "frame_step": lambda n: n.rng.randint(1, 3),
    "frame_length": lambda n: n.rng.randint(1, 3), "Trilu.k": lambda n: n.rng.randint(-3, 3),
    "output_shape": lambda n: [*n.first[:2], *n.each(4, 9, n.spatial)],
    "AffineGrid.size": lambda n: [n.sizes.of("n"), 2, *n.each(1, 5, n.first[-1] - 1 if n.first else 2)],
    "max_output_boxes_per_class": lambda n: n.rng.randint(0, 4), "num_mel_bins": lambda n: 4,
    "sample_rate": lambda n: 8000, "lower_edge_hertz": lambda n: 0.0, "upper_edge_hertz": lambda n: 4000.0,
    "training_mode": lambda n: 0, "Dropout.ratio": lambda n: 0.5,
    "MaxUnpool.output_shape": lambda n: [*n.first[:2], *(2 * d for d in n.first[2:])],
}  # fmt: skip


def _quantum(n: Node) -> float:
    return n.rng.choice((0.5, 0.02, 1.0, 0.0039))


#: "Operator.input" or "input" -> smallest and largest index it may hold.
_INDICES: Mapping[str, Callable[[Node], tuple[int, int]]] = {
    **dict.fromkeys(
        ("Gather.indices", "GatherElements.indices", "ScatterElements.indices", "Scatter.indices"),
        lambda n: (-n.along(), n.along() - 1),
    ),
    **dict.fromkeys(
        ("GatherND.indices", "ScatterND.indices"),
        lambda n: (-min(n.first[:2], default=1), min(n.first[:2], default=1) - 1),
    ),
    "input_ids": lambda n: (0, n.shapes[2][0] - 1), "segment_ids": lambda n: (0, n.sizes.of("s") - 1),
    "mask": lambda n: (0, 1), "microsoft.EmbedLayerNormalization.position_ids": lambda n: (0, 63),
    "mask_index": lambda n: (1, max(n.first[1], 1)) if len(n.shapes) > 5 and len(n.shapes[5]) == 1 else (0, 1),
    "ArrayFeatureExtractor.Y": lambda n: (0, n.along(-1) - 1), "target": lambda n: (0, n.first[1] - 1),
    "labels": lambda n: (0, n.first[1] - 1), "OneHot.indices": lambda n: (-3, 9),
    "sequence_lens": lambda n: (1, max(n.first[0], 1)), "batch_indices": lambda n: (0, n.first[0] - 1),
    "MaxUnpool.I": lambda n: (0, 9), "position_ids": lambda n: (0, n.first[2] - 1), "write_indices": lambda n: (0, 2),
    "nonpad_kv_seqlen": lambda n: (1, 2), "Y_": lambda n: (0, 9), "shift": lambda n: (0, 9),
}  # fmt: skip


def tensor(n: Node, dtype: str, shape: Shape, name: str = "") -> np.ndarray:
    """Values of an input, by its name where that says what they are."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(ONNX_TYPES[f"tensor({LONG.get(dtype, dtype)})"])
    values = np.random.default_rng(n.rng.getrandbits(32))
    if limits := _INDICES.get(f"{n.operator}.{name}", _INDICES.get(name)):
        low, high = limits(n)
        if n.operator in ("Scatter", "ScatterElements") and n.attributes.get("reduction", "none") == "none":
            return _apart(n, values, shape).astype(kind)
        return values.integers(low, max(low, high) + 1, shape).astype(kind)
    if "scale" in name and name != "scale_":
        return np.full(shape, 2 if "int" in dtype else _quantum(n)).astype(kind)
    if dtype == "bool":
        return np.asarray(values.integers(0, 2, shape)).astype(bool)
    if dtype.startswith("float8") and "zero" in name:
        return np.zeros(shape, kind)
    if "int" in dtype:
        return _as(_integers(n, values, dtype, shape), kind)
    return _as(_floats(n, values, shape, name), kind)


def _apart(n: Node, values: np.random.Generator, shape: Shape) -> np.ndarray:
    """Indices along the node's axis of which no two are the same: else ONNX does not say which update stays."""
    axis = n.attributes.get("axis", 0) % len(shape)
    order = values.permutation(n.along())[: shape[axis]] - n.along() * values.integers(0, 2)
    return np.broadcast_to(order.reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape)


def _as(x: np.ndarray, kind: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (x.astype(np.int64) if x.dtype == object and kind.itemsize == 1 else x).astype(kind)


LONG = {"float32": "float", "float64": "double"}


def _integers(n: Node, values: np.random.Generator, dtype: str, shape: Shape) -> np.ndarray:
    bits, signed = int(dtype.lstrip("uint")), not dtype.startswith("u")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    x = np.asarray(values.integers(max(low, -9), min(high, 9) + 1, shape)).astype(object)
    ends = n.rng.random() < 0.2 and n.operator not in (*_TAME, "Pow", "ReduceL2")
    return (
        np.where(values.random(shape) < 0.2, values.choice(np.array([low, high, 0, 1, low + 1], object), shape), x)
        if ends
        else x
    )


def _floats(n: Node, values: np.random.Generator, shape: Shape, name: str) -> np.ndarray:
    x = np.asarray(values.standard_normal(shape) * n.rng.choice((1, 1, 1, 4, 30)))
    if (
        n.operator in _TAME or "ConvTranspose" in n.operator or ("Conv" in n.operator and name in ("W", "w"))
    ):  # padding times infinity
        return np.clip(x, -9, 9)
    if n.rng.random() < 0.2:
        x = np.round(x * 2) / 2
    if n.rng.random() < 0.2:
        x = np.where(values.random(shape) < 0.2, values.choice(_SPECIAL, shape), x)
    if n.operator == "GroupNormalization":  # ONNX's definition subtracts squares: infinity from infinity
        x = np.where(np.abs(x) == 3.4e38, 1e18, x)
    if any(word in n.operator for word in ("Conv", "Gemm", "MatMul")):  # a fused product and sum does not overflow
        x = np.where(np.isfinite(x) & (np.abs(x) > 1e30), 1e10, x)
    return np.abs(x) if name in ("var", "input_var", "variance") else x


#: Operators of which ONNX does not say what becomes of NaN and infinity, or that take time by their values.
_TAME = (
    "GRU", "LSTM", "RNN", "Det", "GridSample", "LinearClassifier", "DynamicQuantizeLinear", "QuantizeLinear",
    "RoiAlign", "MaxRoiPool", "SoftmaxCrossEntropyLoss", "DFT", "MaxPool", "microsoft.NhwcMaxPool", "STFT",
    "Inverse", "Col2Im", "Resize", "Upsample", "microsoft.Attention", "microsoft.CDist", "microsoft.Inverse",
    "microsoft.GridSample", "microsoft.MultiHeadAttention", "microsoft.QAttention",
    "microsoft.SkipLayerNormalization", "microsoft.SkipSimplifiedLayerNormalization",
    "microsoft.DynamicQuantizeLSTM", "microsoft.DynamicQuantizeMatMul", "microsoft.MatMulNBits", "DeformConv",
    "LinearAttention", "Normalizer",
)  # fmt: skip
_SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 1.0, 6e-8, 1e10, 0.5, -2.5, 65504.0, -65520.0, 3.4e38, 2.0**31]
    + [-128.5, 255.5, 16777217.0, -30.0, 89.0]
)
