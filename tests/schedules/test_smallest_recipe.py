"""What a recipe need not say: triu.py states what it takes, the kernel and its loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import tvm_ext
from tests.onnx_graphs import model, node, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.passes.lowering import choose_recipes, group_operations
from tvm_ext.schedules import recipes

from .kernels import make_group, matched, random, run_kernel
from .triu import Triu

SOURCE = Path(__file__).with_name("triu.py").read_text()


def group_of(shape: tuple[int, ...], k: int, dtype: str = "float32"):
    def body(x, y):
        upper = yield relax.op.triu(x, k)
        yield relax.op.add(upper, y)

    return make_group("relax.triu", [shape, shape[-1:]], body, dtype=dtype)


def test_it_has_thirty_lines() -> None:
    assert len(SOURCE.splitlines()) <= 30


@pytest.mark.parametrize(("shape", "k"), [((5, 7), 0), ((2, 3, 33, 19), -2), ((130, 257), 3)])
def test_numbers(shape, k, machine: Machine, rng) -> None:
    x, y = random(rng, *shape), random(rng, shape[-1])
    np.testing.assert_array_equal(run_kernel(Triu(), group_of(shape, k), [x, y], machine), np.triu(x, k) + y)


def test_defaults() -> None:
    """One configuration, whose cost is that of the work the operators state."""
    recipe, machine = Triu(), Machine.described("zen4", 2)
    small, large = (matched(recipe, group_of((n, n), 0), machine) for n in (16, 2048))
    (config,) = recipe.points(large, machine)
    assert config == recipe.default(large, machine) == {"threads": 2} and recipe.default(small, machine) == {
        "threads": 1
    }
    assert recipe.work(large, machine).operations == 2 * 2048**2 + (2 * 2048**2 + 2048)
    assert recipe.cost(large, config, machine) > recipe.cost(small, config, machine) > 0
    assert recipe.sharing(large, config, machine).part == 0.5


def test_it_says_what_it_does_not_take(machine: Machine) -> None:
    assert isinstance(Triu().match(group_of((4, 4), 0, "int64"), machine), Miss)


def test_a_model_is_compiled_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (choose_recipes, group_operations):
        monkeypatch.setattr(module, "recipes", lambda: (*recipes(), Triu()))
    nodes = [node("Trilu", "x", "u", upper=1), node("Relu", "u", "y")]
    compiled = tvm_ext.compile(model(nodes, [value("x", [3, 40, 24])], [value("y", None)]), cache=False)
    assert [kernel["recipe"] for kernel in compiled.report["kernels"]] == ["triu"]
    x = np.random.default_rng(0).standard_normal((3, 40, 24), dtype=np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], np.maximum(np.triu(x), 0))
