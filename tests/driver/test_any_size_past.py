"""Rows behind a past of any size: masks, positions, equal sizes at the bounds; slices. Against onnxruntime."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, text_model, value
from tests.oracles.reference import assert_agrees, session_of
from tvm_ext.runtime.model import CompiledModel

#: (past, new rows)
_SIZES = ((1, 1), (40, 8), (5, 3), (7, 8), (40, 1), (1, 8))
#: A window of positions, written out as exporters do; and these positions as numbers.
_WINDOW = """
window (float[S, 8] x, float[P, 8] past) => (float[S, T] y, float[S, 8] z) {
  one = Constant <value_ints = [1]> ()
  zero = Constant <value_ints = [0]> ()
  step = Constant <value_int = 1> ()
  first = Constant <value_int = 0> ()
  sx = Shape(x)
  sp = Shape(past)
  s1 = Slice(sx, zero, one)
  p1 = Slice(sp, zero, one)
  s = Squeeze(s1)
  p = Squeeze(p1)
  t = Add(s, p)
  rows = Range(p, t, step)
  columns = Range(first, t, step)
  r = Unsqueeze(rows, one)
  c = Unsqueeze(columns, zero)
  later = Greater(c, r)
  four = Constant <value_int = 4> ()
  end = Sub(r, four)
  early = LessOrEqual(c, end)
  hidden = Or(later, early)
  low = Constant <value_float = -10000.0> ()
  nothing = Constant <value_float = 0.0> ()
  mask = Where(hidden, low, nothing)
  all = Concat <axis = 0> (past, x)
  turned = Transpose <perm = [1, 0]> (all)
  scores = MatMul(x, turned)
  masked = Add(scores, mask)
  y = Softmax <axis = -1> (masked)
  places = Cast <to = 1> (r)
  z = Add(x, places)
}
"""
#: At a past and new rows of 16 together, scores and results are of one shape.
_MEETING = """
meeting (float[2, S, 16] q, float[2, S, 16] v, float[2, 16, S] k, float[2, 16, P] past_k, float[2, P, 16] past_v) =>
        (float[2, S, 16] y, float[2, 16, T] present_k, float[2, T, 16] present_v) {
  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 1> (past_v, v)
  scores = MatMul(q, present_k)
  p = Relu(scores)
  o = MatMul(p, present_v)
  y = Relu(o)
}
"""


def agree(proto: onnx.ModelProto, program: CompiledModel, feeds: Iterable[Mapping[str, Any]]) -> None:
    """Outputs are onnxruntime's."""
    reference = session_of(proto.SerializeToString(), optimized=True)
    for inputs in feeds:
        assert_agrees(program, reference, inputs, rtol=1e-4)


def test_causal_attention_over_a_past() -> None:
    shapes = {"q": (1, 2, "S", 16), **dict.fromkeys(("k", "v"), (1, 1, "S", 16)),
              **dict.fromkeys(("past_key", "past_value"), (1, 1, "P", 16))}  # fmt: skip
    attention = node("Attention", "q k v  past_key past_value", "y present_key present_value", is_causal=1)
    outputs = [value(name, None) for name in attention.output]
    proto = model([attention], [value(name, shape) for name, shape in shapes.items()], outputs, {}, opset=23)
    compiled = tvm_ext.compile(proto, dims={"S": (1, 8), "P": (1, 40)}, state="auto")
    feeds = [
        {name: random(*(past if d == "P" else steps if d == "S" else d for d in shape), seed=past + number)
         for number, (name, shape) in enumerate(shapes.items())} for past, steps in _SIZES
    ]  # fmt: skip
    agree(proto, compiled, feeds)
    session = compiled.session({name: feeds[0][name] for name in ("past_key", "past_value")})
    y = session.step({name: feeds[0][name] for name in "qkv"})["y"]
    assert np.array_equal(y, compiled.run(feeds[0])["y"]) and session.state["past_key"].shape[2] == 2


def test_a_window_of_positions() -> None:
    proto = text_model(_WINDOW)
    compiled = tvm_ext.compile(proto, dims={"S": (1, 8), "P": (1, 40)})
    agree(proto, compiled, ({"x": random(steps, 8), "past": random(past, 8, seed=1)} for past, steps in _SIZES))


@pytest.mark.parametrize(("past", "more"), [(8, {}), (20, {"specialize": {"P": (8,)}})])
def test_sizes_that_are_equal_at_the_bounds(past: int, more: dict[str, Any]) -> None:
    proto = text_model(_MEETING)
    compiled = tvm_ext.compile(proto, dims={"S": (1, 8), "P": (1, past)}, **more)
    agree(proto, compiled, (
        {"q": random(2, steps, 16), "v": random(2, steps, 16, seed=1), "k": random(2, 16, steps, seed=2),
         "past_k": random(2, 16, rows, seed=3), "past_v": random(2, rows, 16, seed=4)}
        for rows, steps in ((8, 8), (past, 8), (1, 1), (8, 3), (3, 8))
    ))  # fmt: skip


@pytest.mark.parametrize(("start", "end"), [(0, 3), (0, 5), (1, 5), (-3, 1 << 60), (-7, -1)])
def test_slices_that_take_all_at_small_sizes(start: int, end: int) -> None:
    bounds = {"starts": np.array([start]), "ends": np.array([end]), "axes": np.array([0])}
    nodes = [node("Slice", "x starts ends axes", "part"), node("Softmax", "part", "y", axis=1)]
    proto = model(nodes, [value("x", ("S", 6))], [value("y", None)], bounds)
    compiled = tvm_ext.compile(proto, dims={"S": (2, 40)})
    agree(proto, compiled, ({"x": random(size, 6)} for size in (2, 3, 4, 5, 7, 8, 9, 40)))
