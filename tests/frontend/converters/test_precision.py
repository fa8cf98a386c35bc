"""Narrow floats: what is summed, or has no narrow form, is computed in float32 and rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext

FUNCTIONS = {
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Cosh": np.cosh, "Sinh": np.sinh,
}  # fmt: skip


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_without_a_narrow_form_are_rounded_once(op: str) -> None:
    rng, shape = np.random.default_rng(0), (3, 17)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = (rng.random(shape) + (1.0 if op == "Acosh" else 0.0)).astype(np.float16)
    found = tvm_ext.compile(proto, cache=False, threads=1).run({"x": x})["y"]
    expected = FUNCTIONS[op](x.astype(np.float64)).astype(np.float16)
    assert found.dtype == np.float16
    steps = np.abs(found.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert steps.max() <= 1
