"""Narrow floats: what is summed, or has no narrow form, is computed in float32 and rounded once."""

import ml_dtypes  # noqa: F401  numpy learns bfloat16
import numpy as np
import pytest

from tests.frontend.converters.typed import compiled, proto_of
from tests.frontend.graphs import node, run_onnxruntime

FUNCTIONS = {
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Cosh": np.cosh, "Sinh": np.sinh,
}  # fmt: skip


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_without_a_narrow_form_are_rounded_once(op: str) -> None:
    rng, shape = np.random.default_rng(0), (3, 17)
    x = (rng.random(shape) + (1.0 if op == "Acosh" else 0.0)).astype(np.float16)
    result = compiled([node(op, ["x"], ["y"])], {"x": x}, {"y": "float16"}, 17)["y"]
    expected = FUNCTIONS[op](x.astype(np.float64)).astype(np.float16)
    steps = np.abs(result.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert steps.max() <= 1


#: Operator -> (shapes of its operands, attributes, of its result int64 or bool).
OPERATORS = {
    "ArgMax": ({"x": (3, 7)}, {"axis": 1}, "int64"), "ArgMin": ({"x": (3, 7)}, {"axis": 0}, "int64"),
    "Clip": ({"x": (3, 7), "a": (), "b": ()}, {}, ""), "Hardmax": ({"x": (3, 7)}, {}, ""),
    "IsNaN": ({"x": (3, 7)}, {}, "bool"), "MaxPool": ({"x": (1, 2, 5, 6)}, {"kernel_shape": [2, 3]}, ""),
    "Mod": ({"x": (3, 7), "a": (3, 7)}, {"fmod": 1}, ""),
    "RNN": ({"x": (3, 2, 4), "w": (1, 5, 4), "r": (1, 5, 5)}, {"hidden_size": 5}, ""),
    "GRU": ({"x": (3, 2, 4), "w": (1, 15, 4), "r": (1, 15, 5)}, {"hidden_size": 5}, ""),
    "LSTM": ({"x": (3, 2, 4), "w": (1, 20, 4), "r": (1, 20, 5)}, {"hidden_size": 5}, ""),
}  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_operators_of_narrow_floats(op: str, dtype: str) -> None:
    """Against onnxruntime in float32, on the same numbers."""
    shapes, attributes, other = OPERATORS[op]
    rng = np.random.default_rng(8)
    narrow = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    nodes = [node(op, list(narrow), ["y"], **attributes)]
    wide = {name: array.astype("float32") for name, array in narrow.items()}
    (wanted,) = run_onnxruntime(proto_of(nodes, wide, {"y": other or "float32"}, 22), wide)
    got = compiled(nodes, narrow, {"y": other or dtype}, 22)["y"]
    np.testing.assert_allclose(got.astype("float32"), wanted.astype("float32"), rtol=8e-3, atol=1e-3)
