"""choose-recipes: the least cost wins, and a recipe that cannot is named with its reason."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from tvm import relax

from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees, stage
from tests.schedules.any_size import symbols, with_extents
from tests.schedules.kernels import make_group
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Match, Miss, Recipe
from tvm_ext.passes.lowering import choose_recipes
from tvm_ext.passes.lowering.choose_recipes import ChooseRecipes, least_cost, matches
from tvm_ext.passes.lowering.group_operations import GroupOperations
from tvm_ext.schedules import recipes
from tvm_ext.schedules.recipes.elementwise import Elementwise


class Estimated(Elementwise):
    """The elementwise recipe under another name, with a cost that is given."""

    def __init__(self, name: str, seconds: float, miss: str = "") -> None:
        self.name, self._seconds, self._miss = name, seconds, miss

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        return Miss(self._miss) if self._miss else super().match(group, machine)

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return self._seconds


RELU = model([node("Relu", "x", "y")], [value("x", (4, 6))], [value("y", (4, 6))])


def offered(monkeypatch: pytest.MonkeyPatch, *extra: Recipe) -> None:
    monkeypatch.setattr(choose_recipes, "recipes", lambda: (*recipes(), *extra))


def relu_group() -> Group:
    staged = stage(RELU, GroupOperations)
    return Group("fused_relu", staged.mod["fused_relu"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_least_cost_wins_whatever_the_order(monkeypatch: pytest.MonkeyPatch, order: Sequence[int]) -> None:
    two = (Estimated("dear", 1.0), Estimated("cheap", 1e-12))
    offered(monkeypatch, *(two[i] for i in order))
    machine = Machine.detect(threads=2)
    options = matches(relu_group(), machine)
    plan = least_cost(options, machine)
    assert plan is not None and plan.recipe.name == "cheap" and plan.cost == 1e-12 and not options.reasons


def test_a_recipe_without_a_legal_configuration_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.detect(threads=2)
    monkeypatch.setattr(choose_recipes, "recipes", lambda: (Estimated("none_fits", math.inf),))
    options = matches(relu_group(), machine)
    assert least_cost(options, machine) is None and options.reasons == [
        f"none_fits: no configuration is legal on {machine.isa}"
    ]


def test_all_refusals_reach_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates: Any = (Estimated("first", 1.0, "it is Monday"), Estimated("second", math.inf))
    monkeypatch.setattr(choose_recipes, "recipes", lambda: estimates)
    (kernel,) = agrees(RELU).report["kernels"]
    assert kernel["recipe"] == "generic"
    assert kernel["reason"].startswith("first: it is Monday; second: no configuration is legal")


def test_equal_layers_share_one_decision() -> None:
    weight = random(6, 6, scale=0.3)
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "c"), node("Relu", "c", "y")]
    proto = model(nodes, [value("x", (4, 6))], [value("y", (4, 6))], {"w": weight, "v": weight + 1})
    staged = stage(proto, ChooseRecipes)
    assert list(staged.ctx.plans) == ["fused_matmul_relu"] and len(staged.report.fired) == 1
    (kernel,) = agrees(proto).report["kernels"]
    assert kernel["calls"] == 2
    assert [set(c) for c in kernel["call_sites"]] == [{"matmul_a", "relu_b"}, {"matmul_c", "relu_y"}]


def test_a_recipe_that_needs_all_sizes_refuses_to_mix_others() -> None:
    """A layer norm over an axis of run-time size; over rows of run-time number it is taken, and so is a mean of it."""
    (size,), machine = symbols("S"), Machine.detect(threads=2)
    norm = make_group(
        "relax.nn.layer_norm", [(4, 8), (8,), (8,)], lambda *o: (yield relax.op.nn.layer_norm(*o, axes=[-1]))
    )
    mixed = matches(with_extents(norm, (4, size), (size,), (size,), (4, size)), machine)
    assert not mixed.taken and "layer_norm: relax.nn.layer_norm works over axis 1" in mixed.reasons[0]
    assert matches(with_extents(norm, (size, 8), (8,), (8,), (size, 8)), machine).taken
    mean = make_group("relax.mean", [(4, 8)], lambda x: (yield relax.op.mean(x, axis=[1])))
    assert matches(with_extents(mean, (4, size), (4,)), machine).taken
