"""Plans of groups whose sizes are known at run time, compared at several of them."""

from typing import Any

import pytest
from tvm import relax

from tests.schedules.any_size import symbols, with_extents
from tests.schedules.convolutions import conv_group
from tests.schedules.kernels import make_group
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.plan import Plan
from tvm_ext.passes.lowering.choose_recipes import least_cost, matches
from tvm_ext.passes.sizes.choose_for_sizes import best_over, group_at

XEON = Machine.described("xeon-amx")
SMALL = [{"N": 1, "H": 7, "W": 7}, {"N": 1, "H": 4, "W": 4}]


def layer(channels: int, size: int) -> Group:
    """A 3x3 convolution of up to 4 images."""
    shape, weight = (4, channels, size, size), (channels, channels, 3, 3)
    group = conv_group(shape, weight, padding=(1, 1, 1, 1), strides=(1, 1), dilation=(1, 1))
    n, h, w = symbols("NHW")
    return with_extents(group, (n, channels, h, w), weight, (1, channels, 1, 1), (n, channels, h, w))


def at_bounds(group: Group) -> Plan:
    plan = least_cost(matches(group, XEON), XEON)
    assert plan is not None
    return plan


def test_a_group_at_sizes_has_their_shapes_and_no_extents() -> None:
    now = group_at(layer(64, 12), {"N": 2, "H": 5, "W": 7})
    assert now is not None and now.extents is None
    assert (now.params[0].shape, now.params[1].shape, now.shape) == ((2, 64, 5, 7), (64, 64, 3, 3), (2, 64, 5, 7))
    assert now.anchor == "relax.nn.conv2d" and now.epilogue == layer(64, 12).epilogue


def test_operations_that_state_shapes_of_the_bounds_are_of_no_other_size() -> None:
    def body(x: Any) -> Any:
        yield relax.op.reshape(x, (6, 8))

    (n,) = symbols("N")
    group = with_extents(make_group("relax.reshape", [(6, 2, 4)], body, ()), (n, 2, 4), (n, 8))
    assert group_at(group, {"N": 6}) is not None
    assert group_at(group, {"N": 3}) is None


def test_a_layer_of_many_weights_is_direct_where_small_images_are_common() -> None:
    """At 4 x 12 x 12 Winograd's fourfold weights pay, at 7 x 7 of one image they do not."""
    group = layer(512, 12)
    plan = at_bounds(group)
    assert (plan.recipe.name, plan.config["m"]) == ("conv2d_winograd", 4)
    better = best_over(plan, matches(group, XEON), SMALL, XEON)
    assert better.recipe.name == "conv2d_nchwc" or better.config["m"] == 2
    assert better.recipe.cuts(better.match, better.config)
    same = best_over(plan, matches(group, XEON), [{"N": 4, "H": 12, "W": 12}], XEON)
    assert same.cost == pytest.approx(plan.cost)


def test_a_plan_stays_where_nothing_is_known_of_other_sizes() -> None:
    group = layer(64, 12)
    plan = at_bounds(group)
    assert best_over(plan, matches(group, XEON), [], XEON) is plan
