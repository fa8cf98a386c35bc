"""Small ONNX models with states: recurrent layers, caches of a fixed size, and such as grow."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from .onnx_graphs import model, node, random, value

#: Rows and columns of a cache, and heads.
HEADS, LENGTH, WIDTH = 2, 24, 16


def recurrent(kind: str, batch: int | str = 2, hidden: int = 20) -> onnx.ModelProto:
    """One step of an LSTM or a GRU: x and h (and c) in, y and hn (and cn) out."""
    gates, names = {"LSTM": (4, ("h", "c")), "GRU": (3, ("h",))}[kind]
    weights = {"w": random(1, gates * hidden, 12, scale=0.4), "r": random(1, gates * hidden, hidden, scale=0.4),
               "b": random(1, 2 * gates * hidden, scale=0.4), "first": np.array([0])}  # fmt: skip
    inputs = " ".join(["x", "w", "r", "b", "", *names])
    nodes = [
        node(kind, inputs, " ".join(["steps", *(f"{name}n" for name in names)]), hidden_size=hidden),
        node("Squeeze", "steps first", "y"),
    ]
    states = [(1, batch, hidden)] * len(names)
    ins = [value("x", (1, batch, 12)), *map(value, names, states)]
    return model(
        nodes, ins, [value("y", None), *(value(f"{name}n", s) for name, s in zip(names, states, strict=True))], weights
    )


def cached(update: str, more: Sequence[onnx.NodeProto] = (), outputs: str = "y present") -> onnx.ModelProto:
    """Attention over a cache of keys: x is its own new key, which is written at a position.

    Args:
        update: how: "ScatterND", "ScatterElements", "TensorScatter", or "Where" with a mask of positions.
        more: further nodes, behind the update.
        outputs: of the model.
    """
    position = {
        "ScatterND": (HEADS, 1, 2),
        "ScatterElements": (HEADS, 1, WIDTH),
        "TensorScatter": (1,),
        "Where": (1, 1),
    }
    weights = {"w": random(WIDTH, WIDTH, scale=0.2), "places": np.arange(LENGTH).reshape(LENGTH, 1)}
    how = {
        "ScatterND": [node("ScatterND", "past at key", "present")],
        "ScatterElements": [node("ScatterElements", "past at key", "present", axis=1)],
        "TensorScatter": [
            node("Unsqueeze", "past zero", "past4"), node("Unsqueeze", "key zero", "key4"),
            node("TensorScatter", "past4 key4 at", "present4", axis=2), node("Squeeze", "present4 zero", "present"),
        ],
        "Where": [node("Equal", "places at", "here"), node("Where", "here key past", "present")],
    }  # fmt: skip
    nodes = [
        node("MatMul", "x w", "key"), *how[update], node("Transpose", "present", "keys", perm=[0, 2, 1]),
        node("MatMul", "x keys", "scores"), node("Softmax", "scores", "y"), *more,
    ]  # fmt: skip
    ins = [
        value("x", (HEADS, 1, WIDTH)),
        value("at", position[update], TensorProto.INT64),
        value("past", (HEADS, LENGTH, WIDTH)),
    ]
    outs = [value(name, (HEADS, LENGTH, WIDTH) if name == "present" else None) for name in outputs.split()]
    used = {name for maker in nodes for name in maker.input}
    weights["zero"] = np.array([0])
    weights = {name: array for name, array in weights.items() if name in used}
    return model(nodes, ins, outs, weights, opset=24 if update == "TensorScatter" else 18)


def position(update: str, at: int) -> np.ndarray:
    """The input "at" of :func:`cached` for a position."""
    if update == "ScatterND":
        return np.array([[[head, at]] for head in range(HEADS)])
    shape = {"ScatterElements": (HEADS, 1, WIDTH), "TensorScatter": (1,), "Where": (1, 1)}[update]
    return np.full(shape, at)


def expected(x: np.ndarray, at: int, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What :func:`cached` gives, in numpy: "y" and "present"."""
    present = past.copy()
    present[:, at] = x[:, 0] @ random(WIDTH, WIDTH, scale=0.2)
    scores = np.exp(x @ present.transpose(0, 2, 1))
    return scores / scores.sum(-1, keepdims=True), present


def decoder(
    steps: int | str, rows: int = LENGTH, heads: int = 4, groups: int = 2, batch: int | str = 1,
    cosines: int = 0, halves: bool = False,
) -> onnx.ModelProto:  # fmt: skip
    """Attention over a cache of so many rows, of `steps` new tokens: x, lengths less one, and the longest of them.

    Args:
        cosines: rows of them; 0 for those of the cache.
        halves: attention and caches are of float16.
    """
    size, kind = WIDTH, TensorProto.FLOAT16 if halves else TensorProto.FLOAT
    numbers = np.float16 if halves else np.float32
    width = (heads + 2 * groups) * size
    weights = {
        "w": random(size, width, scale=0.2),
        **{name: random(cosines or rows, size // 2).astype(numbers) for name in ("cos", "sin")},
    }
    inputs = ["qkv", "", "", "past.key", "past.value", "lengths", "total", "cos", "sin"]
    attention = node("GroupQueryAttention", " ".join(inputs), "y present.key present.value", num_heads=heads,
                     kv_num_heads=groups, do_rotary=1)  # fmt: skip
    attention.domain = "com.microsoft"
    cache = (batch, groups, rows, size)
    ins = [value("x", (batch, steps, size)), value("past.key", cache, kind), value("past.value", cache, kind),
           value("lengths", (batch,), TensorProto.INT32), value("total", (), TensorProto.INT32)]  # fmt: skip
    shapes = {"y": (batch, steps, heads * size), "present.key": cache, "present.value": cache}
    outs = [value(name, shape, kind) for name, shape in shapes.items()]
    product = [node("MatMul", "x w", "product"), node("Cast", "product", "qkv", to=kind)]
    proto = model([*product, attention], ins, outs, weights)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return proto


def tokens(steps: int, total: int) -> dict[str, np.ndarray]:
    """What a step of :func:`decoder` takes, after which there are `total` rows."""
    counts = {"lengths": np.int32([total - 1]), "total": np.array(total, "int32")}
    return {"x": random(1, steps, WIDTH, seed=total), **counts}


#: Attention over a cache that grows, as exporters write it.
GROWING = """
<ir_version: 8, opset_import: ["": 17]>
growing (float[1, S, 32] x, float[1, 2, P, 16] past_key, float[1, 2, P, 16] past_value) =>
        (float[1, S, 32] y, float[1, 2, T, 16] present_key, float[1, 2, T, 16] present_value) {
  q0 = MatMul(x, wq)
  k0 = MatMul(x, wk)
  v0 = MatMul(x, wv)
  shape = Shape(x)
  two = Constant <value_ints = [2]> ()
  zero = Constant <value_ints = [0]> ()
  steps = Slice(shape, zero, two)
  heads = Constant <value_ints = [2, 16]> ()
  split = Concat <axis = 0> (steps, heads)
  q1 = Reshape(q0, split)
  k1 = Reshape(k0, split)
  v1 = Reshape(v0, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k = Transpose <perm = [0, 2, 1, 3]> (k1)
  v = Transpose <perm = [0, 2, 1, 3]> (v1)
  present_key = Concat <axis = 2> (past_key, k)
  present_value = Concat <axis = 2> (past_value, v)
  keys = Transpose <perm = [0, 1, 3, 2]> (present_key)
  scores = MatMul(q, keys)
  p = Softmax <axis = -1> (scores)
  o = MatMul(p, present_value)
  joined = Transpose <perm = [0, 2, 1, 3]> (o)
  y = Reshape(joined, shape)
}
"""


def growing() -> onnx.ModelProto:
    """The model :data:`GROWING`."""
    proto = onnx.parser.parse_model(GROWING)
    weights = (onnx.numpy_helper.from_array(random(32, 32, scale=0.2, seed=i), f"w{n}") for i, n in enumerate("qkv"))
    proto.graph.initializer.extend(weights)
    return proto


#: States of rows that grow -> how: what is read of the old value, and where it lies in the new one.
ROWS = {
    "appended": "present_key = Concat <axis = 0> (past_key, x) m = ReduceSum <keepdims = 1> (present_key)",
    "read before": """m = ReduceSum <keepdims = 1> (past_key) n = Add(x, m)
        present_key = Concat <axis = 0> (past_key, n)""",
    "read twice": """l = Concat <axis = 0> (x, past_key) m = ReduceSum <keepdims = 1> (l) n = Add(x, m)
        present_key = Concat <axis = 0> (past_key, n)""",
    "read later": "present_key = Concat <axis = 0> (past_key, x) m = ReduceSum <keepdims = 1> (past_key)",
    "behind": "present_key = Concat <axis = 0> (x, past_key) m = ReduceSum <keepdims = 1> (present_key)",
    "repeated": "present_key = Concat <axis = 0> (past_key, x, past_key) m = Relu(x)",
    "scaled": """l = Concat <axis = 0> (past_key, x) half = Constant <value_float = 0.5> () present_key = Mul(l, half)
        m = ReduceSum <keepdims = 1> (past_key)""",
}


def growing_rows(how: str, steps: int | str = 1) -> onnx.ModelProto:
    """A state past_key [P, 8] that becomes present_key, of more rows, by one of :data:`ROWS`; x and y [steps, 8]."""
    return onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["": 17]>
growing (float[{steps}, 8] x, float[P, 8] past_key) => (float[{steps}, 8] y, float[T, 8] present_key) {{
    {ROWS[how]} y = Add(x, m)
}}
""")
