"""Softmax against float64."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.softmax import Softmax

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import make_group, random, run_kernel

RECIPE = Softmax()


@pytest.mark.parametrize("shape", [(1, 1000), (7, 13), (2, 3, 5), (1, 1), (9,), (64, 32)])
@pytest.mark.parametrize("scale", [1.0, 200.0], ids=["normal", "large"])
def test_agrees_with_float64(shape: Any, scale: float, case_machine: Machine, rng: np.random.Generator) -> None:
    group = make_group("relax.nn.softmax", [shape], lambda x: (yield relax.op.nn.softmax(x, axis=-1)))
    x = random(rng, *shape) * np.float32(scale)
    got = run_kernel(RECIPE, group, [x], case_machine)
    wide = x.astype("float64")
    exact = np.exp(wide - wide.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    # x - max is rounded once, relative to |x - max|: the exponential turns that into a relative error of as much.
    relative = (np.abs(wide - wide.max(-1, keepdims=True)) + shape[-1] + 4) * 2.0**-23
    assert np.all(np.abs(got - exact) <= relative * exact + 1e-37)


@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 0), ((2, 5, 3, 7), 1), ((17, 2), -2)])
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_any_axis(op: str, shape: Any, axis: int, case_machine: Machine, rng: np.random.Generator) -> None:
    """The layout has the axis last; the epilogue's operand follows it."""

    def body(x: Any, y: Any) -> Any:
        s = yield getattr(relax.op.nn, op)(x, axis=axis)
        yield relax.op.multiply(s, y)

    group = make_group(f"relax.nn.{op}", [shape, shape], body)
    x, y = random(rng, *shape), random(rng, *shape)
    got = run_kernel(RECIPE, group, [x, y], case_machine)
    wide = x.astype("float64")
    total = np.log(np.exp(wide).sum(axis, keepdims=True))
    exact = (np.exp(wide - total) if op == "softmax" else wide - total) * y
    assert np.all(np.abs(got - exact) <= (shape[axis] + 8) * 2.0**-22 * np.maximum(np.abs(y), np.abs(exact)))


@pytest.mark.parametrize("far", [-6e3, 5e5])
@pytest.mark.parametrize("length", [16, 37])
def test_log_softmax_of_rows_far_from_zero(
    length: int, far: float, case_machine: Machine, rng: np.random.Generator
) -> None:
    """The largest element goes first: added to the logarithm of the total, which is small, it would round it away."""
    x = (random(rng, 5, length) * 4 + far).astype("float32")
    group = make_group("relax.nn.log_softmax", [x.shape], lambda x: (yield relax.op.nn.log_softmax(x, axis=1)))
    wide = x.astype("float64") - x.max(1, keepdims=True)
    exact = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    got = run_kernel(RECIPE, group, [x], case_machine)
    assert np.all(np.abs(got - exact) <= (length + 8) * 2.0**-22 * np.maximum(1, np.abs(exact)))


@pytest.mark.parametrize("masked", [-np.inf, np.float32(-3.4028235e38), -1e4], ids=["-inf", "lowest", "-1e4"])
@pytest.mark.parametrize("length", [16, 19])
def test_masked_elements_as_onnxruntime(
    masked: float, length: int, case_machine: Machine, rng: np.random.Generator
) -> None:
    """Rows with some, all but one, and all elements masked."""
    x = random(rng, 4, length)
    x[1, length // 2 :], x[2, 1:], x[3, :] = masked, masked, masked
    proto = model([node("Softmax", "x", "y", axis=-1)], [value("x", x.shape)], [value("y", x.shape)])
    want = onnxruntime_outputs(proto, {"x": x})["y"]
    group = make_group("relax.nn.softmax", [x.shape], lambda x: (yield relax.op.nn.softmax(x, axis=-1)))
    np.testing.assert_allclose(run_kernel(RECIPE, group, [x], case_machine), want, rtol=1e-5, atol=1e-37)


def test_nan_spoils_its_row_only(machine: Machine) -> None:
    x = np.zeros((2, 21), "float32")
    x[0, 20] = np.nan
    group = make_group("relax.nn.softmax", [x.shape], lambda x: (yield relax.op.nn.softmax(x, axis=-1)))
    got = run_kernel(RECIPE, group, [x], machine)
    assert np.isnan(got[0]).all() and np.allclose(got[1], 1 / 21)


def test_refuses_double() -> None:
    group = make_group("relax.nn.softmax", [(3, 4)], lambda x: (yield relax.op.nn.softmax(x, axis=0)), dtype="float64")
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "float32" in miss.reason


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize(("bound", "axis"), [((3, 16), 1), ((2, 100), 1), ((2, 37, 5), 1), ((2, 300), -1)])
def test_any_size(op: str, bound: Any, axis: int, case_machine: Machine, rng: np.random.Generator) -> None:
    """NaN behind the extents of rows and of their number."""
    extents = [*symbols("NS"), *bound[2:]]
    group = make_group(f"relax.nn.{op}", [bound], lambda x: (yield getattr(relax.op.nn, op)(x, axis=axis)))
    kernel = AnySize(RECIPE, with_extents(group, extents, extents), case_machine)
    for size in each_size(N={1, bound[0]}, S={1, 2, 13, bound[1] // 2, bound[1] - 1, bound[1]}):
        x = random(rng, size["N"], size["S"], *bound[2:])
        wide = x.astype("float64")
        total = np.log(np.exp(wide).sum(axis, keepdims=True))
        exact = np.exp(wide - total) if op == "softmax" else wide - total
        got = kernel(size, exact.shape, x)
        assert np.all(np.abs(got - exact) <= (size["S"] + 8) * 2.0**-22 * np.maximum(1, np.abs(exact))), size
