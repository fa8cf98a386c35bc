"""Activations where a plain form cancels, overflows or multiplies infinity by 0, against extended precision."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
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


#: Operator -> (attributes, exact function, allowed units in the last place).
CASES: dict[str, tuple[dict[str, Any], Exact, float]] = {
    "Softplus": ({}, _softplus, 4),
    "Mish": ({}, lambda x: x * np.tanh(_softplus(x)), 6),
    "Elu": ({}, _elu, 6),
    "Selu": ({}, lambda x: GAMMA * np.where(x < 0, ALPHA * _elu(x), x), 8),
    "Celu": ({}, _elu, 6),
    "Sigmoid": ({}, _sigmoid, 4),
    "Tanh": ({}, np.tanh, 4),
    "Atanh": ({}, np.arctanh, 4),
    "Asinh": ({}, np.arcsinh, 6),
    "Sign": ({}, np.sign, 0),
    # the argument of its exponential is 25 at -6, and a relative error of that is an absolute one of the logarithm
    "Gelu": ({"approximate": "tanh"}, _gelu_tanh, 32),
}


def run(nodes: Sequence[onnx.NodeProto], x: np.ndarray, *names: str) -> dict[str, np.ndarray]:
    """Values of these names, each of the type of x and of its shape."""
    ends = [value(name, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype)) for name in ("x", *names)]
    return dict(tvm_ext.compile(model(nodes, ends[:1], ends[1:], opset=20), cache=False).run({"x": x}))


def samples(dtype: str) -> np.ndarray:
    """Both sides of 0 from far below 1 to where exponentials end, and random numbers."""
    sizes = np.concatenate([np.geomspace(1e-7 if dtype == "float16" else 1e-30, 1, 41), np.linspace(1.5, 60, 40)])
    normal = np.random.default_rng(0).standard_normal(47)
    return np.concatenate([sizes, -sizes, normal]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_every_digit_is_right(dtype: str) -> None:
    """Celu is of float32 only."""
    x, ops = samples(dtype), [op for op in CASES if op != "Celu" or dtype == "float32"]
    outputs = run([node(op, ["x"], [op], **CASES[op][0]) for op in ops], x, *ops)
    for op, got in outputs.items():
        inside = np.abs(x) < 1 if op == "Atanh" else x > (-6 if op == "Gelu" else -np.inf)
        check_digits(op, x[inside], got[inside])


def check_digits(op: str, x: np.ndarray, got: np.ndarray) -> None:
    _, exact, units = CASES[op]
    dtype = x.dtype.name
    wanted = exact(x.astype(np.longdouble))
    step = np.maximum(np.spacing(np.abs(wanted.astype(dtype))), np.finfo(dtype).smallest_subnormal)
    error = np.abs(got.astype(np.longdouble) - wanted) / step.astype(np.longdouble)
    normal = np.abs(wanted) >= np.finfo(dtype).tiny
    limit = 1.0 if dtype == "float16" else float(units)
    assert error[normal].max() <= limit, (op, x[normal][error[normal].argmax()], error[normal].max())
    assert (np.abs(got[~normal]) <= 2 * np.finfo(dtype).tiny).all()  # subnormal numbers lose digits where they are made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithm_of_softplus(dtype: str) -> None:
    x = np.array([-5, -17, -20, -80], dtype)
    nodes = [node("Softplus", ["x"], ["s"]), node("Log", ["s"], ["y"])]
    wanted = np.log(_softplus(x.astype(np.longdouble)))
    np.testing.assert_allclose(run(nodes, x, "y")["y"], wanted.astype(dtype), rtol=8 * np.finfo(dtype).eps)


ENDS: list[tuple[str, dict[str, float], Exact]] = [
    ("ThresholdedRelu", {"alpha": 1.5}, lambda x: np.where(x > 1.5, x, 0)),
    ("ThresholdedRelu", {"alpha": -1.0}, lambda x: np.where(x > -1, x, 0)),
    ("Shrink", {"bias": 0.25, "lambd": 0.5}, lambda x: np.where(x < -0.5, x + 0.25, np.where(x > 0.5, x - 0.25, 0))),
    ("Shrink", {"bias": 0.25, "lambd": -1.5}, lambda x: np.where(x < 1.5, x + 0.25, np.where(x > -1.5, x - 0.25, 0))),
    ("Elu", {"alpha": 0.0}, lambda x: np.where(x < 0, 0 * np.expm1(x), x)),
    ("Sign", {}, np.sign),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_ends_of_the_range(dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5], dtype)
    nodes = [node(op, ["x"], [f"{op}{i}"], **attributes) for i, (op, attributes, _) in enumerate(ENDS)]
    outputs = run(nodes, x, *(each.output[0] for each in nodes))
    for got, (op, _, function) in zip(outputs.values(), ENDS, strict=True):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got, function(x).astype(dtype), err_msg=op)
