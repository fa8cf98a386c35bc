"""What a recipe need not say: the one of CONTRIBUTING states what it takes, its kernel and its loops."""

import re
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss, Recipe

from .kernels import make_group, matched, random, run_kernel

DOCUMENT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
SOURCE = re.search(r"## The smallest recipe\n.*?```python\n(.*?)```", DOCUMENT, re.DOTALL)[1]  # type: ignore[index]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    names: dict = {}
    exec(SOURCE, names)
    return names["Broadcast"]()


def group_of(x: tuple[int, ...], shape: tuple[int, ...]) -> Group:
    def body(x, y):
        wide = yield relax.op.broadcast_to(x, shape)
        yield relax.op.add(wide, y)

    return make_group("relax.broadcast_to", [x, shape[-1:]], body)


def test_it_has_thirty_lines() -> None:
    assert len(SOURCE.splitlines()) <= 30


@pytest.mark.parametrize(("x", "shape"), [((5, 1), (5, 7)), ((2, 1, 33, 1), (2, 3, 33, 19)), ((1, 257), (130, 257))])
def test_numbers(recipe, x, shape, machine: Machine, rng) -> None:
    wide, bias = random(rng, *x), random(rng, shape[-1])
    np.testing.assert_array_equal(
        run_kernel(recipe, group_of(x, shape), [wide, bias], machine), np.broadcast_to(wide, shape) + bias
    )


def test_defaults(recipe) -> None:
    """One configuration, whose cost is that of the work the operators state."""
    machine, n = Machine.described("zen4", 2), 2048
    small, large = (matched(recipe, group_of((size, 1), (size, size)), machine) for size in (16, n))
    (config,) = recipe.points(large, machine)
    assert config == recipe.default(large, machine) == {"threads": 2}
    assert recipe.default(small, machine) == {"threads": 1}
    assert recipe.work(large, machine).operations == n * n + (n + n + n * n)  # an addition; reads and writes
    assert recipe.cost(large, config, machine) > recipe.cost(small, config, machine) > 0
    assert recipe.sharing(large, config, machine).part == 0.5


def test_it_says_what_it_does_not_take(recipe, machine: Machine) -> None:
    assert isinstance(recipe.match(group_of((4,), (3, 4)), machine), Miss)
