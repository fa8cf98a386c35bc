"""Every scalar operator, broadcasting and layouts, against float64."""

import math
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.ops import operators
from tvm_ext.ops.scalars.operators import takes
from tvm_ext.schedules.recipes.elementwise import Elementwise

from ..kernels import make_group, random, run_kernel

RECIPE = Elementwise()


def _names(*types: str) -> set[str]:
    """Elementwise operators that take such types."""
    return {name for row in operators() if row.is_elementwise and row.types in types for name in row.relax}


SHAPES = [(1, 1), (3, 17), (2, 5, 7, 9), (4, 64)]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softplus(x: Any) -> Any:
    """Of beta 2 and threshold 1.5."""
    return np.where(x * 2 > 1.5, x, np.logaddexp(0.0, 2 * x) / 2)


_ERF = np.vectorize(math.erf)
UNARY = {
    "relax.negative": (relax.op.negative, np.negative),
    "relax.abs": (relax.op.abs, np.abs),
    "relax.exp": (relax.op.exp, np.exp),
    "relax.log": (relax.op.log, np.log),
    "relax.sqrt": (relax.op.sqrt, np.sqrt),
    "relax.rsqrt": (relax.op.rsqrt, lambda x: 1 / np.sqrt(x)),
    "relax.tanh": (relax.op.tanh, np.tanh),
    "relax.erf": (relax.op.erf, _ERF),
    "relax.atanh": (relax.op.atanh, np.arctanh),
    "relax.sign": (relax.op.sign, np.sign),
    "relax.nn.softplus": (lambda x: relax.op.nn.softplus(x, 2.0, 1.5), _softplus),
    "relax.floor": (relax.op.floor, np.floor),
    "relax.ceil": (relax.op.ceil, np.ceil),
    "relax.sigmoid": (relax.op.sigmoid, _sigmoid),
    "relax.nn.relu": (relax.op.nn.relu, lambda x: np.maximum(x, 0)),
    "relax.nn.silu": (relax.op.nn.silu, lambda x: x * _sigmoid(x)),
    "relax.nn.gelu": (relax.op.nn.gelu, lambda x: 0.5 * x * (1 + _ERF(x * math.sqrt(0.5)))),
    "relax.nn.gelu_tanh": (relax.op.nn.gelu_tanh, _gelu_tanh),
    "relax.clip": (lambda x: relax.op.clip(x, -0.5, 0.75), lambda x: np.clip(x, -0.5, 0.75)),
    "relax.nn.leakyrelu": (lambda x: relax.op.nn.leakyrelu(x, 0.125), lambda x: np.where(x > 0, x, 0.125 * x)),
}
BINARY = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.power": np.power,
}


def test_every_operator_of_the_table_is_tested() -> None:
    assert _names("floats", "numbers") == set(UNARY) | set(BINARY)


def close(got: np.ndarray, exact: np.ndarray) -> None:
    """Within 8 roundings of the result: library functions are good to 1 or 2 ulp, polynomials here have few terms."""
    np.testing.assert_allclose(got, exact, rtol=16 * 2.0**-24, atol=2e-7)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, rng: np.random.Generator) -> None:
    op, exact = UNARY[name]
    group = make_group("elementwise", [(5, 13)], lambda x: (yield op(x)))
    x = random(rng, 5, 13)
    if name in ("relax.log", "relax.sqrt", "relax.rsqrt"):
        x = np.abs(x) + np.float32(0.01)
    if name == "relax.atanh":
        x = np.tanh(x)
    close(run_kernel(RECIPE, group, [x], Machine.detect()), exact(x.astype("float64")))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("other", [(2, 5, 7), (5, 1), (7,), (1, 1, 1)])
def test_binary_broadcasts(name: str, other: Any, rng: np.random.Generator) -> None:
    op = getattr(relax.op, name.removeprefix("relax."))
    group = make_group("elementwise", [(2, 5, 7), other], lambda x, y: (yield op(x, y)))
    x, y = random(rng, 2, 5, 7), random(rng, *other)
    if name == "relax.power":
        x = np.abs(x) + np.float32(0.1)
    close(run_kernel(RECIPE, group, [x, y], Machine.detect()), BINARY[name](x.astype("float64"), y))


@pytest.mark.parametrize("shape", SHAPES)
def test_chain(shape: Any, case_machine: Machine, rng: np.random.Generator) -> None:
    def body(x: Any, y: Any) -> Any:
        a = yield relax.op.add(x, y)
        b = yield relax.op.multiply(a, relax.const(3.0, "float32"))
        c = yield relax.op.nn.relu(b)
        yield relax.op.subtract(c, a)

    group = make_group("elementwise", [shape, shape], body)
    x, y = random(rng, *shape), random(rng, *shape)
    total = x.astype("float64") + y
    close(run_kernel(RECIPE, group, [x, y], case_machine), np.maximum(3 * total, 0) - total)


@pytest.mark.parametrize("shape", [(2, 13, 3, 5), (1, 13, 6, 5), (1, 5, 1, 7)])
def test_keeps_blocks_of_channels(shape: Any, machine: Machine, rng: np.random.Generator) -> None:
    bias = (1, shape[1], 1, 1)
    group = make_group("elementwise", [shape, shape, bias], lambda x, y, b: _sum3(x, y, b))
    blocked = Layout.blocked(4, machine.lanes)
    offered = [Layout.plain(4), blocked, Layout.plain(4)]
    arrays = [random(rng, *s) for s in (shape, shape, bias)]
    match = RECIPE.match(group, machine)
    layouts = RECIPE.layouts(match, RECIPE.default(match, machine), offered)  # type: ignore[arg-type]
    assert layouts.output == layouts.params[0] == layouts.params[1] == blocked
    for threads in (1, 2):
        got = run_kernel(RECIPE, group, arrays, machine, {"threads": threads}, offered)
        close(got, sum(a.astype("float64") for a in arrays))


def _sum3(x: Any, y: Any, b: Any) -> Any:
    a = yield relax.op.add(x, y)
    yield relax.op.add(a, b)


def test_double_precision(rng: np.random.Generator) -> None:
    group = make_group("elementwise", [(3, 5)], lambda x: (yield relax.op.exp(x)), dtype="float64")
    x = rng.standard_normal((3, 5))
    np.testing.assert_allclose(run_kernel(RECIPE, group, [x], Machine.detect()), np.exp(x), rtol=4 * 2.0**-53)


@pytest.mark.parametrize(
    "op",
    [
        relax.op.nn.relu,
        lambda x: relax.op.clip(x, 0.0, 6.0),
        lambda x: relax.op.maximum(x, relax.const(0.5, "float32")),
        lambda x: relax.op.minimum(relax.const(0.5, "float32"), x),
    ],
)
def test_lets_nan_through(op: Any) -> None:
    group = make_group("elementwise", [(2, 9)], lambda x: (yield op(x)))
    x = np.full((2, 9), np.nan, "float32")
    assert np.isnan(run_kernel(RECIPE, group, [x], Machine.detect())).all()


COMPARISONS = {
    "relax.equal": np.equal, "relax.not_equal": np.not_equal, "relax.less": np.less, "relax.less_equal": np.less_equal,
    "relax.greater": np.greater, "relax.greater_equal": np.greater_equal,
}  # fmt: skip
LOGIC = {
    "relax.logical_and": np.logical_and, "relax.logical_or": np.logical_or, "relax.logical_xor": np.logical_xor,
}  # fmt: skip


def test_every_operator_between_types_is_tested() -> None:
    # The last two: tests/passes/steps/test_decodes.py.
    conversions = {"relax.astype", "relax.quantize", "relax.dequantize"}
    typed = _names("comparison", "logic", "conversion", "quantization")
    assert typed == {*COMPARISONS, *LOGIC, "relax.logical_not", "relax.where", *conversions}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in COMPARISONS), ("relax.equal", "int64"), ("relax.less_equal", "int64")],
)
def test_comparison(name: str, dtype: str, case_machine: Machine, rng: np.random.Generator) -> None:
    op = getattr(relax.op, name.removeprefix("relax."))
    group = make_group("elementwise", [(3, 37), (3, 1)], lambda x, y: (yield op(x, y)), dtype=dtype)
    x, y = rng.integers(-2, 3, (3, 37)).astype(dtype), rng.integers(-2, 3, (3, 1)).astype(dtype)
    assert np.array_equal(run_kernel(RECIPE, group, [x, y], case_machine), COMPARISONS[name](x, y))


@pytest.mark.parametrize("name", LOGIC)
def test_logic(name: str, case_machine: Machine, rng: np.random.Generator) -> None:
    def body(x: Any, y: Any) -> Any:
        z = yield getattr(relax.op, name.removeprefix("relax."))(x, y)
        yield relax.op.logical_not(z)

    group = make_group("elementwise", [(2, 41), (41,)], body, dtype="bool")
    x, y = rng.integers(0, 2, (2, 41)).astype(bool), rng.integers(0, 2, 41).astype(bool)
    assert np.array_equal(run_kernel(RECIPE, group, [x, y], case_machine), ~LOGIC[name](x, y))


def test_where_and_casts(machine: Machine, rng: np.random.Generator) -> None:
    """An attention mask as models write it: where(mask, 0, lowest) from integers of another shape."""

    def body(mask: Any) -> Any:
        real = yield relax.op.astype(mask, "float32")
        left = yield relax.op.subtract(relax.const(1.0, "float32"), real)
        drop = yield relax.op.astype(left, "bool")
        yield relax.op.where(drop, relax.const(-3.0e38, "float32"), left)

    group = make_group("elementwise", [(2, 1, 1, 37)], body, dtype="int64")
    mask = rng.integers(0, 2, (2, 1, 1, 37))
    want = np.where(mask == 0, np.float32(-3.0e38), np.float32(0))
    assert np.array_equal(run_kernel(RECIPE, group, [mask], machine), want)


def test_integers_are_not_divided() -> None:
    assert takes("relax.add", ["int64", "int64"], "int64")
    assert not takes("relax.divide", ["int64", "int64"], "int64")
    assert not takes("relax.add", ["int64", "float32"], "float32")


def test_types_of_truth_values() -> None:
    assert takes("relax.equal", ["bool", "bool"], "bool")
    assert takes("relax.logical_not", ["bool"], "bool")
