"""Layer norm and RMS norm against float64."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.layer_norm import LayerNorm

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import ROUNDOFF, make_group, random, run_kernel

RECIPE = LayerNorm()
EPSILON = 1e-5
CASES = [((2, 9, 64), [-1]), ((7, 13), [1]), ((3, 5, 7), [1, 2]), ((33,), [0]), ((5, 1), [1]), ((4, 3), [-1])]


def group_of(shape: Any, axes: Any, rms: bool = False, **options: Any) -> Any:
    row = [shape[a] for a in axes]
    operands = [shape, row, row, shape]

    def body(x: Any, g: Any, b: Any, y: Any) -> Any:
        if rms:
            n = yield relax.op.nn.rms_norm(x, g, axes, EPSILON)
        else:
            n = yield relax.op.nn.layer_norm(x, g, b, axes, EPSILON, **options)
        yield relax.op.add(n, y)

    return make_group(f"relax.nn.{'rms' if rms else 'layer'}_norm", operands, body)


def check(
    shape: Any, axes: Any, machine: Machine, rng: Any, mean: float = 0.0, rms: bool = False, **options: Any
) -> None:
    x, y = random(rng, *shape) + np.float32(mean), random(rng, *shape)
    row = [shape[a] for a in axes]
    g, b = random(rng, *row), random(rng, *row)
    got = run_kernel(RECIPE, group_of(shape, axes, rms, **options), [x, g, b, y], machine)
    wide, axis, length = x.astype("float64"), tuple(axes), int(np.prod(row))
    center = 0.0 if rms else wide.mean(axis, keepdims=True)
    scale = 1 / np.sqrt(((wide - center) ** 2).mean(axis, keepdims=True) + EPSILON)
    normal = (wide - center) * scale
    g64 = g if rms or options.get("scale", True) else np.ones_like(g)
    b64 = b if not rms and options.get("center", True) else np.zeros_like(b)
    exact = normal * g64 + b64 + y
    # The mean is good to a few roundings of the largest element, which the scale makes larger; the rest is relative.
    error = ROUNDOFF * (4 * np.abs(wide).max() * scale + (length + 8) * (np.abs(normal) + 1))
    assert np.all(np.abs(got - exact) <= error * np.abs(g64) + 4 * ROUNDOFF * (np.abs(exact) + np.abs(b64) + np.abs(y)))


@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_agrees_with_float64(
    shape: Any, axes: Any, mean: float, case_machine: Machine, rng: np.random.Generator
) -> None:
    check(shape, axes, case_machine, rng, mean)


@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_rms_norm(shape: Any, axes: Any, case_machine: Machine, rng: np.random.Generator) -> None:
    check(shape, axes, case_machine, rng, rms=True)


@pytest.mark.parametrize("options", [{"scale": False}, {"center": False}, {"scale": False, "center": False}])
def test_without_weight_or_bias(options: Any, case_machine: Machine, rng: np.random.Generator) -> None:
    check((3, 21), [-1], case_machine, rng, **options)


def test_refuses_axes_that_are_not_last() -> None:
    miss = RECIPE.match(group_of((3, 4), [0]), Machine.detect())
    assert isinstance(miss, Miss) and "[0]" in miss.reason


def test_rows_of_any_number(machine: Machine, rng: np.random.Generator) -> None:
    """Each row stands alone: NaN in those that are not in use reaches no other."""
    (n, s), shape = symbols("NS"), (3, 7, 40)
    group = make_group(
        "relax.nn.layer_norm", [shape, (40,), (40,)], lambda *o: (yield relax.op.nn.layer_norm(*o, axes=[-1]))
    )
    kernel = AnySize(RECIPE, with_extents(group, (n, s, 40), (40,), (40,), (n, s, 40)), machine)
    for size in each_size(N={1, 3}, S={1, 5, 7}):
        x, scale, shift = random(rng, size["N"], size["S"], 40), random(rng, 40), random(rng, 40)
        wide = x.astype("float64")
        exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale + shift
        np.testing.assert_allclose(kernel(size, exact.shape, x, scale, shift), exact, rtol=1e-4, atol=1e-5)
