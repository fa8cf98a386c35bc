"""Small models to mutate: what real exporters write, in a few hundred bytes each."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from tests import onnx_graphs as graphs

_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64
_info = helper.make_tensor_value_info


def _model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, Sequence[int]],
    weights: Mapping[str, np.ndarray] | None = None, opset: int = 17,
) -> onnx.ModelProto:  # fmt: skip
    ends = [[_info(name, _FLOAT, shape) for name, shape in values.items()] for values in (inputs, outputs)]
    return graphs.model(nodes, *ends, weights, opset)


def _random(*shape: int, scale: float = 0.5) -> np.ndarray:
    return (np.random.default_rng([6, *shape]).standard_normal(shape) * scale).astype(np.float32)


def convolutional(opset: int) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, MaxPool, depthwise Conv, residual Add, GlobalAveragePool, Flatten, Gemm."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "norm"),
        node("Relu", ["n1"], ["r1"], "relu"),
        node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], ["c2"], "depthwise", group=4, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", ["p1", "c2"], ["a1"], "residual"),
        node("GlobalAveragePool", ["a1"], ["g1"], "mean"),
        node("Flatten", ["g1"], ["f1"], "flat"),
        node("Gemm", ["f1", "w3", "b3"], ["y"], "dense", transB=1),
    ]
    weights = {
        "w1": _random(4, 3, 3, 3), "b1": _random(4), "scale": np.abs(_random(4, 1))[:, 0], "shift": _random(4),
        "mean": _random(4), "var": np.abs(_random(4, 2))[:, 0] + np.float32(0.1), "w2": _random(4, 1, 3, 3),
        "w3": _random(5, 4), "b3": _random(5),
    }  # fmt: skip
    return _model(nodes, {"x": (1, 3, 6, 7)}, {"y": (1, 5)}, weights, opset)


def attention() -> onnx.ModelProto:
    """Embedding, layer norm, one head of attention written out, a residual, and the shape arithmetic of exporters."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"], "embed"),
        node("LayerNormalization", ["e", "gamma", "beta"], ["n"], "norm", axis=-1),
        node("MatMul", ["n", "wq"], ["q"], "query"),
        node("MatMul", ["n", "wk"], ["k"], "key"),
        node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"], "scores"),
        node("Div", ["s", "root"], ["d"], "scaled"),
        node("Softmax", ["d"], ["p"], "probabilities", axis=-1),
        node("MatMul", ["p", "n"], ["o"], "mixed"),
        node("Add", ["o", "e"], ["r"], "residual"),
        node("Shape", ["r"], ["shape"], "shape"),
        node("Gather", ["shape", "zero"], ["rows"], "rows", axis=0),
        node("Concat", ["rows", "rest"], ["target"], "target", axis=0),
        node("Reshape", ["r", "target"], ["y"], "reshape"),
    ]
    weights = {
        "ids": np.array([[1, 4, 0]]), "table": _random(6, 8), "gamma": _random(8), "beta": _random(8),
        "wq": _random(8, 8), "wk": _random(8, 8), "root": np.float32(2.8), "zero": np.array([0]),
        "rest": np.array([-1]),
    }  # fmt: skip
    model = _model(nodes, {}, {"y": (1, 24)}, weights)
    tensors = [t for t in model.graph.initializer if t.name != "ids"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)
    model.graph.input.append(_info("ids", _INT64, (1, 3)))
    return model


_TEXTS = {
    "lstm": """<ir_version: 8, opset_import: ["" : 14]> g (float[5, 1, 3] x) => (float[5, 1, 1, 4] y, float[1, 1, 4] h)
      <float[1, 16, 3] w, float[1, 16, 4] r, float[1, 32] b>
      { y, h = LSTM <hidden_size = 4> (x, w, r, b) }""",
    "gru": """<ir_version: 8, opset_import: ["" : 14]> g (float[3, 2, 3] x) => (float[3, 2, 2, 2] y)
      <float[2, 6, 3] w, float[2, 6, 2] r>
      { y = GRU <hidden_size = 2, direction = "bidirectional", linear_before_reset = 1> (x, w, r) }""",
    "loop": """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y, float[4, 2, 3] all)
      <int64 n = {4}, bool c = {1}>
      { y, all = Loop (n, c, x) <body = b (int64 i, bool go, float[2, 3] s) => (bool go2, float[2, 3] t, float[2, 3] u)
          { go2 = Identity (go)  f = Cast <to = 1> (i)  t = Add (s, f)  u = Tanh (t) }> }""",
    "scan": """<ir_version: 8, opset_import: ["" : 17]> g (float[2] s0, float[3, 2] x) => (float[2] s, float[3, 2] z)
      { s, z = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] e) => (float[2] o, float[2] w)
          { o = Add (a, e)  w = Mul (o, e) }> (s0, x) }""",
    "if": """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y)
      <bool c = {1}, float k = {2.5}>
      { y = If (c) <
          then_branch = t () => (float[2, 3] p) { q = If (c) <
              then_branch = t2 () => (float[2, 3] m) { m = Mul (x, k) },
              else_branch = e2 () => (float[2, 3] l) { l = Neg (x) }>  p = Relu (q) },
          else_branch = e () => (float[2, 3] r) { r = Sub (x, k) }> }""",
    "if computed": """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x, bool c) => (float[2, 3] y)
      { y = If (c) < then_branch = t () => (float[2, 3] p) { p = Exp (x) },
                     else_branch = e () => (float[2, 3] r) { r = Neg (x) }> }""",
    "functions": """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2, 4] x) => (float[2, 4] y)
      { h = own.twice <scale = 1.5> (x)  y = own.inner (h) }
      <domain: "own", opset_import: ["" : 17, "own" : 1]> twice <scale> (a) => (b)
      { s = Constant <value_float : float = @scale> ()  m = Mul (a, s)  b = own.inner (m) }
      <domain: "own", opset_import: ["" : 17]> inner (a) => (b) { r = Sigmoid (a)  b = Add (r, a) }""",
    "shapes": """<ir_version: 8, opset_import: ["" : 13]> g (float[2, 3, 4] x)
      => (float[2, 12] y, int64[3] s, float[1, 6] z)
      <int64[1] zero = {0}, int64[1] minus = {-1}, int64[2] start = {0, 1}, int64[2] stop = {1, 3},
       int64[2] axes = {0, 1}>
      { s = Shape (x)  n = Gather <axis = 0> (s, zero)  t = Concat <axis = 0> (n, minus)  y = Reshape (x, t)
        c = Slice (y, start, stop, axes)  t2 = Constant <value_ints = [1, 2]> ()  e = Expand (c, t2)
        z = Concat <axis = 1> (c, e, c) }""",
    "quantized": """<ir_version: 10, opset_import: ["" : 19]> g (float[1, 2, 5, 5] x) => (float[1, 3, 3, 3] y)
      <float s = {0.02}, uint8 z = {128}, int8[3, 2, 3, 3] w, float[3] ws = {0.01, 0.02, 0.03}, int8[3] wz = {0, 0, 0},
       int32[3] b = {10, -20, 30}, int32[3] bz = {0, 0, 0}, float[3] bs = {0.0002, 0.0004, 0.0006}>
      { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  v = DequantizeLinear <axis = 0> (w, ws, wz)
        c = DequantizeLinear <axis = 0> (b, bs, bz)  o = Conv (d, v, c)  r = Relu (o)
        u = QuantizeLinear (r, s, z)  y = DequantizeLinear (u, s, z) }""",
    "integers": """<ir_version: 8, opset_import: ["" : 17]> g (int64[3, 4] a, int64[4] b)
      => (int64[3, 4] y, int64[3, 2] k)
      <int64[1] two = {2}, int64 three = {3}>
      { c = Mul (a, b)  d = Div (c, three)  m = Mod (d, three)  e = Sub (a, m)  g = Greater (a, b)  y = Where (g, e, a)
        v, k = TopK <axis = 1> (y, two) }""",
    "scatter": """<ir_version: 8, opset_import: ["" : 16]> g (float[4, 3] x, int64[2, 1] i, float[2, 3] u,
      int64[2, 3] j) => (float[4, 3] y, float[2, 3] g2, float[2, 3] g3)
      { y = ScatterND (x, i, u)  e = ScatterElements <axis = 0> (y, j, u)  g2 = GatherND (e, i)
        g3 = GatherElements <axis = 0> (x, j) }""",
    "chain": """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 37] x) => (float[1, 37] y)
      { a = Mul (x, x)  b = Add (a, x)  c = Mul (b, a)  d = Sqrt (a)  e = Div (c, d)  f = Tanh (e)  h = Max (f, b)
        i = Clip (h)  y = Pow (d, i) }""",
    "pool": """<ir_version: 8, opset_import: ["" : 19]> g (float[1, 2, 7, 6] x) => (float[1, 2, 7, 6] y)
      <float[4] scales = {1.0, 1.0, 2.0, 2.0}, int64[8] pads = {0, 0, 0, 0, 0, 0, 1, 0}>
      { a = AveragePool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 0], count_include_pad = 1> (x)
        r = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , scales)
        p = Pad (r, pads)  z0 = Constant <value_ints = [0]> ()  z7 = Constant <value_ints = [7]> ()
        z2 = Constant <value_ints = [2]> ()  s = Slice (p, z0, z7, z2)  y = Softmax <axis = 1> (s) }""",
    "transpose": """<ir_version: 8, opset_import: ["" : 15]> g (float[2, 3, 4] x) => (float[4, 2] y)
      { a = Transpose <perm = [2, 0, 1]> (x)  ax = Constant <value_ints = [2]> ()  b = ReduceSum <keepdims = 0> (a, ax)
        c = Einsum <equation = "ab->ba"> (b)  d = Transpose (c)  y = LeakyRelu <alpha = 0.2> (d) }""",
}


def from_text(name: str) -> onnx.ModelProto:
    """A model of the texts above; values that it declares and nothing makes are random initializers."""
    model = parser.parse_model(_TEXTS[name])
    computed = {output for node in model.graph.node for output in node.output}
    for value in model.graph.value_info:
        if value.name not in computed:
            kind = value.type.tensor_type
            values = _random(*(dim.dim_value for dim in kind.shape.dim))
            if kind.elem_type == TensorProto.INT8:
                values = (values * 100).astype(np.int8)
            model.graph.initializer.append(numpy_helper.from_array(values, value.name))
    del model.graph.value_info[:]
    return model


def all_models() -> dict[str, onnx.ModelProto]:
    """Every model by name."""
    opsets = {f"convolutional {opset}": convolutional(opset) for opset in (7, 9, 11, 13, 17, 21)}
    return {**opsets, "attention": attention(), **{name: from_text(name) for name in _TEXTS}}
