"""Matmul by dot-product instructions: exact sums of integers, bfloat16 within its rounding, the plain twins."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.dense_dot import DenseDot

from ..kernels import ROUNDOFF
from ..narrow import BF16, TYPES, assert_exact, narrow_group, needs, run_narrow, twin

MACHINE = Machine.detect()
RECIPE, TWIN = DenseDot(), twin(DenseDot())
CASES = {
    "square": ((64, 64), (64, 64)),
    "one row": ((1, 512), (512, 100)),
    "three rows": ((3, 48), (48, 40)),
    "odd": ((5, 7, 30), (30, 17)),
    "odd words": ((2, 3, 17), (17, 5)),
    "one of each": ((1, 1), (1, 1)),
    "prime": ((13, 31), (31, 37)),
    "tall": ((200, 20), (20, 24)),
}


def anchor(a: Any, b: Any, **more: Any) -> Any:
    return relax.op.matmul(a, b, **more)


def make(case: str, types: Any, rng: np.random.Generator) -> tuple[Any, list[np.ndarray], np.ndarray]:
    """(group, arrays, result): sums are exact, the epilogue is computed in float32."""
    x, w = CASES[case]
    group = narrow_group(anchor, types, x, w, w[1], 1, (w[1],))
    arrays = types.arrays(rng, x, w)
    exact: Any = np.matmul(*types.whole(*arrays))
    return group, arrays, types.result(rng, arrays, exact, (w[1],))


def check_integers(case: str, types: Any, recipe: DenseDot, config: Any = None) -> None:
    group, arrays, expected = make(case, types, np.random.default_rng(1))
    got = run_narrow(recipe, group, arrays, MACHINE, config)
    assert_exact(types, got, expected, arrays[-1])


@needs["int8"]
@pytest.mark.parametrize(
    ("case", "types"), [(case, ("integers", "unsigned integers")[i % 2]) for i, case in enumerate(CASES)]
)
def test_integers_are_exact(case: str, types: str) -> None:
    check_integers(case, TYPES[types], RECIPE)


@needs["int8"]
@pytest.mark.parametrize(("case", "types"), [(("odd", "three rows")[i % 2], types) for i, types in enumerate(TYPES)])
def test_types(case: str, types: str) -> None:
    check_integers(case, TYPES[types], RECIPE)


@pytest.mark.parametrize(("case", "types"), [(("prime", "tall")[i % 2], types) for i, types in enumerate(TYPES)])
def test_the_plain_twin_has_the_same_bits(case: str, types: str) -> None:
    check_integers(case, TYPES[types], TWIN)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("recipe", [pytest.param(RECIPE, marks=needs["bf16"]), TWIN], ids=["vdpbf16ps", "plain"])
def test_bf16_within_the_rounding_of_its_sums(case: str, recipe: DenseDot) -> None:
    group, arrays, expected = make(case, BF16, np.random.default_rng(2))
    got = run_narrow(recipe, group, arrays, MACHINE)
    x, w = (abs(a) for a in BF16.whole(*arrays[:2]))
    assert np.all(np.abs(got - expected) <= (len(w) + 4) * ROUNDOFF * (x @ w + abs(arrays[-1])))


def test_what_is_refused() -> None:
    group, *_ = make("square", TYPES["int8"], np.random.default_rng(0))
    miss = RECIPE.match(group, Machine.detect("nehalem"))
    assert isinstance(miss, Miss) and "avx512vnni" in miss.reason
