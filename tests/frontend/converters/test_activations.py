"""Activations where a plain form cancels, overflows or multiplies infinity by 0, against extended precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext

from ..graphs import model, node, value

Exact = Callable[[np.ndarray], np.ndarray]
ALPHA, GAMMA = np.float32(1.67326319217681884765625), np.float32(1.05070102214813232421875)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * _sigmoid(2 * np.sqrt(2 / np.longdouble(np.pi)) * (x + np.longdouble("0.044715") * x**3))


#: Operator -> (attributes, opset, exact function, allowed units in the last place).
CASES: dict[str, tuple[dict[str, Any], int, Exact, float]] = {
    "Softplus": ({}, 17, _softplus, 4),
    "Mish": ({}, 18, lambda x: x * np.tanh(_softplus(x)), 6),
    "Elu": ({}, 17, _elu, 6),
    "Selu": ({}, 17, lambda x: GAMMA * np.where(x < 0, ALPHA * _elu(x), x), 8),
    "Celu": ({}, 17, _elu, 6),
    "Sigmoid": ({}, 17, _sigmoid, 4),
    "Tanh": ({}, 17, np.tanh, 4),
    "Atanh": ({}, 17, np.arctanh, 4),
    "Asinh": ({}, 17, np.arcsinh, 6),
    "Sign": ({}, 17, np.sign, 0),
    # the argument of its exponential is 25 at -6, and a relative error of that is an absolute one of the logarithm
    "Gelu": ({"approximate": "tanh"}, 20, _gelu_tanh, 32),
}


def run(proto: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(tvm_ext.compile(proto, cache=False).run({"x": x})["y"])


def samples(dtype: str) -> np.ndarray:
    """Both sides of 0 from far below 1 to where exponentials end, and random numbers."""
    sizes = np.concatenate([np.geomspace(1e-7 if dtype == "float16" else 1e-30, 1, 41), np.linspace(1.5, 60, 40)])
    normal = np.random.default_rng(0).standard_normal(47)
    return np.concatenate([sizes, -sizes, normal]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", CASES)
def test_every_digit_is_right(op: str, dtype: str) -> None:
    attributes, opset, exact, units = CASES[op]
    if op == "Celu" and dtype != "float32":
        pytest.skip("ONNX has Celu of float32 only")
    x = samples(dtype)
    if op == "Atanh":
        x = x[np.abs(x) < 1]
    if op == "Gelu":
        x = x[x > -6]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    ends = [value(name, x.shape, kind) for name in "xy"]
    got = run(model([node(op, ["x"], ["y"], **attributes)], ends[:1], ends[1:], opset=opset), x)
    wanted = exact(x.astype(np.longdouble))
    step = np.maximum(np.spacing(np.abs(wanted.astype(dtype))), np.finfo(dtype).smallest_subnormal)
    error = np.abs(got.astype(np.longdouble) - wanted) / step.astype(np.longdouble)
    normal = np.abs(wanted) >= np.finfo(dtype).tiny
    limit = 1.0 if dtype == "float16" else float(units)
    assert error[normal].max() <= limit, (x[normal][error[normal].argmax()], error[normal].max())
    assert (np.abs(got[~normal]) <= 2 * np.finfo(dtype).tiny).all()  # subnormal numbers lose digits where they are made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithm_of_softplus(dtype: str) -> None:
    x = np.array([-5, -17, -20, -80], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    ends = [value(name, x.shape, kind) for name in "xy"]
    nodes = [node("Softplus", ["x"], ["s"]), node("Log", ["s"], ["y"])]
    wanted = np.log(_softplus(x.astype(np.longdouble)))
    np.testing.assert_allclose(
        run(model(nodes, ends[:1], ends[1:]), x), wanted.astype(dtype), rtol=8 * np.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("op", "attributes", "function"),
    [
        ("ThresholdedRelu", {"alpha": 1.5}, lambda x: np.where(x > 1.5, x, 0)),
        ("ThresholdedRelu", {"alpha": -1.0}, lambda x: np.where(x > -1, x, 0)),
        (
            "Shrink",
            {"bias": 0.25, "lambd": 0.5},
            lambda x: np.where(x < -0.5, x + 0.25, np.where(x > 0.5, x - 0.25, 0)),
        ),
        (
            "Shrink",
            {"bias": 0.25, "lambd": -1.5},
            lambda x: np.where(x < 1.5, x + 0.25, np.where(x > -1.5, x - 0.25, 0)),
        ),
        ("Elu", {"alpha": 0.0}, lambda x: np.where(x < 0, 0 * np.expm1(x), x)),
        ("Sign", {}, np.sign),
    ],
)
def test_ends_of_the_range(op: str, attributes: dict[str, float], function: Exact, dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    ends = [value(name, x.shape, kind) for name in "xy"]
    got = run(model([node(op, ["x"], ["y"], **attributes)], ends[:1], ends[1:]), x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, function(x).astype(dtype))
