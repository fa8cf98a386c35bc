"""Softmax against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.softmax import Softmax

from .kernels import make_group, random, run_kernel

RECIPE = Softmax()


@pytest.mark.parametrize("shape", [(1, 1000), (7, 13), (2, 3, 5), (1, 1), (9,), (64, 32)])
@pytest.mark.parametrize("scale", [1.0, 200.0], ids=["normal", "large"])
def test_agrees_with_float64(shape: Any, scale: float, machine: Machine, rng: np.random.Generator) -> None:
    group = make_group("relax.nn.softmax", [shape], lambda x: (yield relax.op.nn.softmax(x, axis=-1)))
    x = random(rng, *shape) * np.float32(scale)
    got = run_kernel(RECIPE, group, [x], machine)
    wide = x.astype("float64")
    exact = np.exp(wide - wide.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    # x - max is rounded once, relative to |x - max|: the exponential turns that into a relative error of as much.
    relative = (np.abs(wide - wide.max(-1, keepdims=True)) + shape[-1] + 4) * 2.0**-23
    assert np.all(np.abs(got - exact) <= relative * exact + 1e-37)


def test_refuses_another_axis() -> None:
    group = make_group("relax.nn.softmax", [(3, 4)], lambda x: (yield relax.op.nn.softmax(x, axis=0)))
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "axis 0" in miss.reason
