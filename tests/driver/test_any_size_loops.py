"""Loops whose number of steps is a size, or computed, in programs of any size, against onnxruntime."""

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import text_model
from tests.oracles.reference import assert_agrees, session_of

SCAN = """
steps (float[S, 4] x, float[4] first) => (float[4] last, float[S, 4] y) {
  last, y = Scan <num_scan_inputs = 1, scan_input_directions = [BACK], scan_output_directions = [BACK],
    body = step (float[4] a, float[4] row) => (float[4] c, float[4] d) {
      h = Tanh(a)
      c = Add(h, row)
      d = Mul(c, row)
    }> (first, x)
}
"""
LOOP = """
steps (float[S, 4] x, float[4] first) => (float[4] last, float[N, 4] y) {
  shape = Shape <start = 0, end = 1> (x)
  zero = Constant <value_ints = [0]> ()
  n = Squeeze(shape, zero)
  going = Constant <value = bool {1}> ()
  last, y = Loop <body = step (int64 i, bool k, float[4] a) => (bool o, float[4] c, float[4] d) {
      o = Identity(k)
      h = Tanh(a)
      f = Cast <to = 1> (i)
      c = Add(h, f)
      d = Identity(c)
    }> (n, going, first)
}
"""
COMPUTED = """
steps (float[S, 4] x, float[4] first) => (float[4] last, float[S, 4] y) {
  most = ReduceMax <keepdims = 0> (x)
  n = Cast <to = 7> (most)
  going = Constant <value = bool {1}> ()
  last = Loop <body = step (int64 i, bool k, float[4] a) => (bool o, float[4] c) {
      o = Identity(k)
      h = Tanh(a)
      f = Cast <to = 1> (i)
      c = Add(h, f)
    }> (n, going, first)
  y = Add(x, last)
}
"""


@pytest.mark.parametrize("text", [SCAN.replace("BACK", "0"), SCAN.replace("BACK", "1"), LOOP, COMPUTED])
def test_loops_are_right_at_all_sizes(text: str) -> None:
    model = text_model(text, opset=19)
    compiled = tvm_ext.compile(model, dims={"S": (1, 40)}, cache=False, records=None, threads=1)
    session = session_of(model, optimized=True)
    for size in (1, 40, 7, 13, 1):
        x = np.random.default_rng(size).uniform(0, 5, (size, 4)).astype("float32")
        feeds = {"x": x, "first": np.ones(4, "float32")}
        assert_agrees(compiled, session, feeds, rtol=1e-5, where=size)
