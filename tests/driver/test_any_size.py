"""One program for all sizes within bounds, against onnxruntime: whole models, at the ends of bounds and between."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model as model_of
from tests.onnx_graphs import node, text_model, value
from tests.oracles.reference import assert_agrees, session_of
from tvm_ext.core.errors import InputError, ModelError, OptionError, UnsupportedError
from tvm_ext.runtime.model import CompiledModel

ROWS = """
rows (float[N, S, 24] x) => (float[N, S, 40] y) {
  h = MatMul(x, w1)
  b = Add(h, b1)
  e = Erf(b)
  y = Mul(b, e)
}
"""
TOKENS = """
tokens (int64[N, S] ids, float[N, S] mask) => (float[N, S, 32] y, float[N, 32] pooled, float[N, 32] last) {
  x = Gather(table, ids)
  q0 = MatMul(x, wq)
  k0 = MatMul(x, wk)
  v0 = MatMul(x, wv)
  shape = Shape(ids)
  heads = Constant <value_ints = [4, 8]> ()
  split = Concat <axis = 0> (shape, heads)
  q1 = Reshape(q0, split)
  k1 = Reshape(k0, split)
  v1 = Reshape(v0, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k = Transpose <perm = [0, 2, 3, 1]> (k1)
  v = Transpose <perm = [0, 2, 1, 3]> (v1)
  scores = MatMul(q, k)
  axes = Constant <value_ints = [1, 2]> ()
  m4 = Unsqueeze(mask, axes)
  one = Constant <value_float = 1.0> ()
  off = Sub(one, m4)
  big = Constant <value_float = -10000.0> ()
  bias = Mul(off, big)
  masked = Add(scores, bias)
  p = Softmax <axis = -1> (masked)
  o = MatMul(p, v)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  width = Constant <value_ints = [32]> ()
  joined = Concat <axis = 0> (shape, width)
  c = Reshape(ot, joined)
  r = Add(c, x)
  y = LayerNormalization <axis = -1> (r, gamma, beta)
  last_axis = Constant <value_ints = [2]> ()
  m3 = Unsqueeze(mask, last_axis)
  kept = Mul(y, m3)
  one_axis = Constant <value_ints = [1]> ()
  total = ReduceSum <keepdims = 0> (kept, one_axis)
  count = ReduceSum <keepdims = 0> (m3, one_axis)
  pooled = Div(total, count)
  index = Constant <value_int = -1> ()
  last = Gather <axis = 1> (y, index)
}
"""
IMAGE = """
image (float[N, 3, H, W] x) => (float[N, 10] y, float[N, 16, A, B] map) {
  c1 = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, k1, b1)
  r1 = Relu(c1)
  p = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r1)
  d = Conv <group = 16, pads = [1, 1, 1, 1]> (p, k2, b1)
  r2 = Relu(d)
  c3 = Conv <pads = [1, 1, 1, 1]> (r2, k3, b1)
  map = Add(c3, p)
  g = GlobalAveragePool(map)
  f = Flatten(g)
  y = Gemm <transB = 1> (f, wf, bf)
}
"""
MOVES = """
moves (float[S, 6] x, float[T, 6] z) => (
  float[R, 6] joined, float[F, 3] flat, float[S, 6] soft, float[C, 6] cut, float[6, S] turned, float[D, 6] stepped,
  float[E, 6] back
) {
  joined = Concat <axis = 0> (x, z)
  to = Constant <value_ints = [-1, 3]> ()
  flat = Reshape(x, to)
  soft = Softmax <axis = 0> (x)
  begin = Constant <value_ints = [-2]> ()
  end = Constant <value_ints = [9223372036854775807]> ()
  axis = Constant <value_ints = [0]> ()
  cut = Slice(joined, begin, end, axis)
  from = Constant <value_ints = [1]> ()
  behind = Constant <value_ints = [26]> ()
  two = Constant <value_ints = [2]> ()
  stepped = Slice(x, from, behind, axis, two)
  last = Constant <value_ints = [20]> ()
  least = Constant <value_ints = [-100]> ()
  minus = Constant <value_ints = [-3]> ()
  back = Slice(x, last, least, axis, minus)
  turned = Transpose <perm = [1, 0]> (x)
}
"""
SPEECH = """
speech (float[N, S, 24] x) => (float[N, S, 20] y, float[1, N, 20] last) {
  steps = Transpose <perm = [1, 0, 2]> (x)
  both = LSTM <hidden_size = 20, direction = "bidirectional"> (steps, w1, r1, b1)
  beside = Transpose <perm = [0, 2, 1, 3]> (both)
  to = Constant <value_ints = [0, 0, -1]> ()
  joined = Reshape(beside, to)
  all, last = GRU <hidden_size = 20, linear_before_reset = 1> (joined, w2, r2, b2)
  axis = Constant <value_ints = [1]> ()
  one = Squeeze(all, axis)
  y = Transpose <perm = [1, 0, 2]> (one)
}
"""


def _weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype("float32") for name, shape in shapes.items()}


MODELS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "rows": (ROWS, _weights(w1=(24, 40), b1=(40,))),
    "tokens": (TOKENS, _weights(table=(50, 32), wq=(32, 32), wk=(32, 32), wv=(32, 32), gamma=(32,), beta=(32,))),
    "image": (IMAGE, _weights(k1=(16, 3, 3, 3), k2=(16, 1, 3, 3), k3=(16, 16, 3, 3), b1=(16,), wf=(10, 16), bf=(10,))),
    "moves": (MOVES, {}),
    "speech": (SPEECH, _weights(w1=(2, 80, 24), r1=(2, 80, 20), b1=(2, 160), w2=(1, 60, 40), r2=(1, 60, 20),
                                b2=(1, 120))),
}  # fmt: skip
DIMS: dict[str, dict[str, tuple[int, int]]] = {
    "rows": {"N": (1, 5), "S": (1, 40)},
    "tokens": {"N": (1, 4), "S": (1, 70)},
    "image": {"N": (1, 3), "H": (5, 64), "W": (5, 80)},
    "moves": {"S": (2, 33), "T": (1, 20)},
    "speech": {"N": (1, 5), "S": (1, 90)},
}
SIZES: dict[str, list[dict[str, int]]] = {
    "rows": [{"N": 1, "S": 1}, {"N": 5, "S": 40}, {"N": 3, "S": 37}, {"N": 2, "S": 16}],
    "tokens": [{"N": 1, "S": 1}, {"N": 4, "S": 70}, {"N": 3, "S": 37}, {"N": 2, "S": 64}],
    "image": [{"N": n, "H": h, "W": w} for n, h, w in ((1, 5, 5), (3, 64, 80), (2, 37, 61), (1, 32, 79))],
    "moves": [{"S": 2, "T": 1}, {"S": 33, "T": 20}, {"S": 7, "T": 13}, {"S": 16, "T": 8}],
    "speech": [{"N": 1, "S": 1}, {"N": 5, "S": 90}, {"N": 2, "S": 33}],
}
_compiled: dict[str, CompiledModel] = {}


def model_named(name: str) -> onnx.ModelProto:
    return text_model(*MODELS[name])


def compiled_named(name: str) -> CompiledModel:
    if name not in _compiled:
        _compiled[name] = tvm_ext.compile(model_named(name), dims=DIMS[name], threads=2, cache=False, records=None)
    return _compiled[name]


def feeds_of(compiled: CompiledModel, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(sum(sizes.values()))
    feeds = {}
    for spec in compiled.inputs:
        shape = spec.sized(sizes).sizes
        if spec.dtype == "int64":
            feeds[spec.name] = rng.integers(0, 50, shape)
        elif spec.name == "mask":
            feeds[spec.name] = (np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))).astype("float32")
        else:
            feeds[spec.name] = rng.standard_normal(shape).astype("float32")
    return feeds


@pytest.mark.parametrize("name", MODELS)
def test_a_program_agrees_with_onnxruntime_at_any_size(name: str) -> None:
    compiled = compiled_named(name)
    session = session_of(model_named(name), optimized=True)
    for sizes in [*SIZES[name], SIZES[name][0]]:  # what a larger call left behind is not read
        feeds = feeds_of(compiled, sizes)
        outputs = compiled.run(feeds)
        for spec, expected in zip(compiled.outputs, session.run(None, feeds), strict=True):
            assert outputs[spec.name].shape == expected.shape == spec.sized(sizes).sizes
            where, scale = f"{spec.name} {sizes}", 1e-5 * max(1.0, float(np.ptp(expected)))
            np.testing.assert_allclose(outputs[spec.name], expected, rtol=0, atol=scale, err_msg=where)


def test_sizes_out_of_bounds_and_contradictions_are_errors() -> None:
    compiled = compiled_named("tokens")
    feeds = feeds_of(compiled, {"N": 2, "S": 20})
    with pytest.raises(InputError, match=r"'mask'.*S is 19 here and 20 in dimension 1 of input 'ids'"):
        compiled.run({**feeds, "mask": feeds["mask"][:, :19]})
    with pytest.raises(InputError, match="S is 71; it can be 1 to 70"):
        compiled.run({"ids": np.zeros((2, 71), "int64"), "mask": np.ones((2, 71), "float32")})
    with pytest.raises(InputError, match="N is 0; it can be 1 to 4"):
        compiled.run({"ids": np.zeros((0, 7), "int64"), "mask": np.ones((0, 7), "float32")})


def test_the_outputs_say_how_their_sizes_follow() -> None:
    shapes = {spec.name: spec.shape for spec in compiled_named("moves").outputs}
    assert shapes["joined"] == ("(S + T)", 6)
    assert shapes["flat"] == ("(S * 2)", 3)
    assert shapes["turned"] == (6, "S")


def test_verify_takes_sizes_or_draws_them() -> None:
    model, compiled = model_named("rows"), compiled_named("rows")
    report = tvm_ext.verify(compiled, model)
    assert report.ok and len(report.outputs) == 4
    assert tvm_ext.verify(compiled, model, sizes=[{"N": 2, "S": 3}]).outputs[0].name == "y (N 2, S 3)"
    with pytest.raises(OptionError, match="S is 41"):
        tvm_ext.verify(compiled, model, sizes=[{"N": 2, "S": 41}])


def test_names_without_bounds_have_those_that_are_stated() -> None:
    model = model_named("rows")
    compiled = tvm_ext.compile(model, shapes={"x": ("B", "T", 24)}, cache=False, records=None, threads=1)
    assert [(s.name, s.low, s.high) for s in compiled.symbols] == [("B", 1, 8), ("T", 1, 512)]
    with pytest.raises(OptionError, match=r"no dimension of .* is 'T'"):
        tvm_ext.compile(model, dims={"T": (1, 8)}, cache=False)


def test_a_model_whose_branches_round_takes_multiples() -> None:
    model = text_model("""
        pyramid (float[1, 4, H, 16] x) => (float[1, 4, H, 16] y) {
          p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
          scales = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
          u = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (p, , scales)
          y = Add(u, x)
        }
    """)
    compiled = tvm_ext.compile(model, dims={"H": (2, 40)}, cache=False, records=None)
    assert compiled.symbols[0].multiple == 2
    assert tvm_ext.verify(compiled, model).ok
    with pytest.raises(InputError, match="multiple of 2"):
        compiled.run(np.zeros((1, 4, 7, 16), "float32"))
    with pytest.raises(ModelError, match="every size of H"):  # and not a program that takes none
        tvm_ext.compile(model, dims={"H": (7, 7)}, cache=False, records=None)


@pytest.mark.parametrize("name", ["shrink", "y_1"])
def test_a_refusal_names_the_node(name: str) -> None:
    pool = node("MaxPool", "x", "y", name, kernel_shape=[2, 2], strides=[3, 2], auto_pad="SAME_UPPER")
    proto = model_of([pool], [value("x", [1, 3, "H", 8])], [value("y", [1, 3, "R", 4])], {})
    with pytest.raises(ModelError, match=f"MaxPool node '{name}'"):
        tvm_ext.compile(proto, dims={"H": (2, 24)}, cache=False, records=None)


CLAMPED = """
clamped (float[S, 4] x) => (float[A, 3] first, int64[2] shape, bool[S, 4] mask, int64[1] size) {
  begin = Constant <value_ints = [0, 1]> ()
  end = Constant <value_ints = [100, 9]> ()
  first = Slice(x, begin, end)
  shape = Shape(x)
  size = Shape <start = 0, end = 1> (x)
  kept, mask = Dropout(x)
}
"""
WINDOWS = """
windows (float[1, 3, H, 9] x) => (float[1, 16, A, 7] y, float[1, 3, B, 4] p) {
  y = Conv (x, k)
  p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)
}
"""
CEILING = """
<ir_version: 8, opset_import: ["": 22]>
ceiling (float[1, 3, H, 9] x) => (float[1, 3, A, B] y) {
  y = AveragePool <kernel_shape = [3, 3], strides = [3, 3], pads = [1, 1, 1, 1], ceil_mode = 1> (x)
}
"""
ATTENTION = """
<ir_version: 10, opset_import: ["": 23]>
heads (float[2, 3, S, D] q, float[2, 3, S, D] k, float[2, 3, S, D] v) => (float[2, 3, S, D] y) {
  y = Attention (q, k, v)
}
"""
ROOT = """
rooted (float[S, 4] x) => (float[S, 4] y) {
  shape = Shape(x)
  f = Cast <to = 1> (shape)
  first = Constant <value_int = 0> ()
  n = Gather(f, first)
  root = Sqrt(n)
  y = Div(x, root)
}
"""
#: Kind of what was wrong -> model, bounds, the smallest sizes that it takes.
KINDS: dict[str, tuple[str, dict[str, tuple[int, int]], dict[str, int]]] = {
    "what no large size shows": (CLAMPED, {"S": (3, 400)}, {"S": 3}),
    "windows larger than an image": (WINDOWS, {"H": (1, 20)}, {"H": 3}),
    "a last window that would begin in the padding": (CEILING, {"H": (1, 12)}, {"H": 1}),
    "a root of a size": (ROOT, {"S": (1, 40)}, {"S": 1}),
    "scales of a symbolic width": (ATTENTION, {"S": (1, 9), "D": (1, 24)}, {"S": 1, "D": 1}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_wrong_is_right_at_all_sizes(kind: str) -> None:
    text, dims, lows = KINDS[kind]
    model = text_model(text, _weights(k=(16, 3, 3, 3)) if "Conv" in text else {})
    compiled = tvm_ext.compile(model, dims=dims, threads=1, cache=False, records=None)
    assert {symbol.name: symbol.low for symbol in compiled.symbols} == lows
    session = session_of(model, optimized=True)
    for part in (0.0, 1.0, 0.3, 0.45, 0.6, 0.0):
        sizes = {name: lows[name] + round(part * (high - lows[name])) for name, (_, high) in dims.items()}
        feeds = feeds_of(compiled, sizes)
        assert_agrees(compiled, session, feeds, where=sizes)


def test_what_depends_on_sizes_by_value_is_refused_with_the_node() -> None:
    model = text_model(ROOT.replace("Sqrt", "Log"))
    with pytest.raises((UnsupportedError, ModelError), match="follow from no symbol"):
        tvm_ext.compile(model, dims={"S": (2, 40)}, cache=False)


def test_what_only_small_sizes_show_is_computed_or_refused() -> None:
    """A branch by the size, and a number that is clamped below all sizes that programs are compared at."""
    least = text_model("""
        least (float[S, 4] x) => (float[S, 4] y) {
          shape = Shape(x)
          first = Constant <value_int = 0> ()
          n = Gather(shape, first)
          limit = Constant <value_int = 20> ()
          m = Min(n, limit)
          f = Cast <to = 1> (m)
          y = Div(x, f)
        }
    """)
    compiled = tvm_ext.compile(least, dims={"S": (1, 512)}, cache=False, records=None, threads=1)
    for size in (1, 5, 20, 300):
        x = np.ones((size, 4), "float32")
        np.testing.assert_allclose(compiled.run(x)["y"], x / min(size, 20), rtol=1e-6)


def test_sizes_that_do_not_fit_each_other_are_errors_and_numbers_are_arrays() -> None:
    model = text_model("""
        rest (float[S, 4] x, float[N, 4] n) => (float[R, 4] y, float total) {
          count = Shape <start = 0, end = 1> (n)
          end = Constant <value_ints = [9223372036854775807]> ()
          axis = Constant <value_ints = [0]> ()
          y = Slice(x, count, end, axis)
          all = Constant <value_ints = [0, 1]> ()
          total = ReduceSum <keepdims = 0> (x, all)
        }
    """)
    compiled = tvm_ext.compile(model, dims={"S": (1, 64), "N": (1, 8)}, cache=False, records=None, threads=1)
    x = np.ones((9, 4), "float32")
    outputs = compiled.run({"x": x, "n": np.ones((3, 4), "float32")})
    assert outputs["y"].shape == (6, 4) and isinstance(outputs["total"], np.ndarray) and outputs["total"] == 36
    with pytest.raises(InputError, match="do not fit each other"):
        compiled.run({"x": x[:2], "n": np.ones((8, 4), "float32")})
