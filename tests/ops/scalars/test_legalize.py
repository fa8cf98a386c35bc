"""Elementwise operators in no recipe's kernel: narrow floats are computed in float32 and rounded once."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.onnx_graphs import model, node, value

UNARY: dict[str, Any] = {
    "Tanh": np.tanh, "Exp": np.exp, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sqrt": np.sqrt, "Sign": np.sign,
    "Relu": lambda x: np.where(x < 0, 0, x), "Neg": np.negative, "Softplus": lambda x: np.logaddexp(0, x),
}  # fmt: skip
BINARY: dict[str, Any] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum}


def run(ops: list[str], dtype: str, *operands: np.ndarray, weights: Any = ()) -> dict[str, np.ndarray]:
    arrays = [x.astype(getattr(ml_dtypes, dtype, dtype)) for x in operands]
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    names = ["x", "y"][: len(arrays)]
    constants = {n: a for n, a in zip(names, arrays, strict=True) if n in weights}
    inputs = [value(n, a.shape, kind) for n, a in zip(names, arrays, strict=True) if n not in constants]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    nodes, outputs = [node(op, " ".join(names), op) for op in ops], [value(op, shape, kind) for op in ops]
    proto = model(nodes, inputs, outputs, constants)
    compiled = tvm_ext.compile(proto, cache=False, accuracy="exact")
    feeds = {n: a for n, a in zip(names, arrays, strict=True) if n not in constants}
    return dict(compiled.run(feeds))


def rounded_once(got: np.ndarray, exact: np.ndarray) -> None:
    """The nearest number to the exact one, or its neighbour where float32 lies on the other side of a middle."""
    want = exact.astype(got.dtype)
    assert got.dtype == want.dtype
    assert (np.isnan(got) == np.isnan(want)).all()
    numbers = ~np.isnan(want)
    steps = np.abs(got.view("int16").astype(int) - want.view("int16").astype(int))[numbers & (got != want)]
    assert steps.max(initial=0) <= 1 and len(steps) <= 0.02 * got.size + 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", UNARY)
def test_functions(op: str, dtype: str) -> None:
    if op == "Softplus" and dtype == "bfloat16":
        pytest.skip("ONNX has none")
    x = np.concatenate([[np.nan, np.inf, -np.inf, 0.0, -0.0], np.random.default_rng(0).standard_normal(200) * 6])
    x = x.astype(getattr(ml_dtypes, dtype, dtype)).astype("float64")
    with np.errstate(all="ignore"):
        rounded_once(run([op], dtype, x)[op], UNARY[op](x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shapes", [((3, 5, 7), (3, 5, 7)), ((3, 1, 7), (5, 1)), ((), (4, 3)), ((4, 3), ())], ids=str)
def test_broadcasts(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    rng = np.random.default_rng(1)
    kind = getattr(ml_dtypes, dtype, dtype)
    x, y = (np.asarray(rng.standard_normal(s)).astype(kind).astype("float64") for s in shapes)
    for weights in ((), ("x",), ("y",)):
        for op, got in run([*BINARY], dtype, x, y, weights=weights).items():
            rounded_once(got, BINARY[op](x, y))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("compare", ["GreaterOrEqual", "Less", "Equal"])
@pytest.mark.parametrize(("op", "numpy"), [("Sinh", np.sinh), ("Acosh", np.arccosh), ("Atanh", np.arctanh)])
def test_comparisons_of_functions_become_numbers(op: str, numpy: Any, compare: str, dtype: str) -> None:
    """A function that names values, compared and cast: TVM reads what becomes a bfloat16 more than once."""
    kind = getattr(ml_dtypes, dtype, dtype)
    x, c = np.linspace(-3, 3, 37).astype(kind), np.asarray(1, kind)
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [node(op, "x", "s"), node(compare, "s c", "l"), node("Cast", "l", "y", to=number)]
    proto = model(nodes, [value("x", x.shape, number)], [value("y", x.shape, number)], {"c": c}, opset=22)
    with np.errstate(all="ignore"):
        s = numpy(x.astype("float64")).astype(kind).astype("float32")
    truth = {"GreaterOrEqual": np.greater_equal, "Less": np.less, "Equal": np.equal}[compare](s, 1)
    got = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    assert got.dtype == x.dtype and np.array_equal(got, truth.astype(kind))


def test_one_kernel_where_tvm_fuses() -> None:
    shape = (3, 40)
    nodes = [node("Mul", "x c", "a"), node("Add", "a x", "b"), node("Tanh", "b", "y")]
    ends = [value(n, shape, 10) for n in "xy"]
    proto = model(nodes, ends[:1], ends[1:], {"c": np.float16(0.5)})
    assert len(tvm_ext.compile(proto, cache=False).report["kernels"]) == 1
