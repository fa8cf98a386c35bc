"""fuse-expansions: a pointwise and a depthwise convolution become one group where that pays, and only there."""

from typing import Any

import onnx
import pytest
from tvm.ir import IRModule

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees, stage
from tests.schedules.any_size import symbols, with_extents
from tvm_ext.core.fusion import no_fusion
from tvm_ext.core.graph.relax_graph import iter_groups
from tvm_ext.core.group import Group
from tvm_ext.passes.lowering import merging
from tvm_ext.passes.lowering.fuse_expansions import ANCHOR, FuseExpansions, fused_alike
from tvm_ext.passes.lowering.group_operations import GroupOperations


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the estimates say depends on the machine."""
    monkeypatch.setattr(merging, "WORTH", 1e9)


def inverted(size: int, second_reader: bool = False, groups: int = 192) -> onnx.ModelProto:
    """relu(conv1x1(x)), then relu(conv3x3) of `groups` groups."""
    nodes = [
        node("Conv", "x w1", "a"), node("Relu", "a", "m"),
        node("Conv", "m w2", "c", group=groups, pads=[1, 1, 1, 1]), node("Relu", "c", "y"),
    ]  # fmt: skip
    outputs = [value("y", (1, 192, size, size))]
    if second_reader:
        nodes.append(node("Sigmoid", "m", "z"))
        outputs.append(value("z", (1, 192, size, size)))
    weights = {"w1": random(192, 16, 1, 1, scale=0.2), "w2": random(192, 192 // groups, 3, 3, scale=0.3)}
    return model(nodes, [value("x", (1, 16, size, size))], outputs, weights)


def test_two_groups_become_one() -> None:
    staged = stage(inverted(12), FuseExpansions)
    assert staged.groups == ["conv2d relu conv2d relu"]
    assert len(staged.fired) == 1


def test_the_kernel_agrees_and_knows_its_nodes() -> None:
    compiled = agrees(inverted(12))
    kernel = next(k for k in compiled.report["kernels"] if k["recipe"] == "expand_depthwise")
    assert sorted(kernel["nodes"]) == ["conv_a", "conv_c", "relu_m", "relu_y"]


LEFT: dict[str, Any] = {
    "what stands between is read twice": (inverted(12, second_reader=True), {}),
    "not depthwise": (inverted(12, groups=2), {}),
    "no fusion": (inverted(12), {"fusion": "none"}),
    "a model that refuses": (inverted(12), {"fusion": no_fusion}),
}


@pytest.mark.parametrize("case", LEFT)
def test_leaves_alone(case: str) -> None:
    proto, options = LEFT[case]
    staged = stage(proto, FuseExpansions, **options)
    assert staged.report.fired == () and len(staged.groups) >= 2


def test_says_what_it_expected_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WORTH", 0.0)
    staged = stage(inverted(12), FuseExpansions)
    assert len(staged.groups) == 2
    assert [d for d in staged.skipped.values() if "as one kernel" in d]


@pytest.mark.parametrize("axis", [0, 2], ids=["batch", "height"])
def test_run_time_sizes(axis: int) -> None:
    """They go into the merged group."""
    staged, (size,) = stage(inverted(12), GroupOperations), symbols("N")
    mod = IRModule(dict(staged.mod.functions_items()), attrs=staged.mod.attrs)
    for gvar, function in iter_groups(staged.mod):
        group = Group(gvar.name_hint, function)
        shapes = [p.shape if p.constant else _at_run_time(p.shape, axis, size) for p in group.params]
        group = with_extents(group, *shapes, _at_run_time(group.shape, axis, size))
        mod.update_func(gvar, group.function)
    result = FuseExpansions([{"N": 7}]).run(mod, staged.ctx)
    assert result.fired
    for gvar, function in iter_groups(result.mod):
        extents = Group(gvar.name_hint, function).extents
        assert extents is not None and len(extents) == len(function.params) + 1
        assert extents[0][axis].same_as(size) and extents[-1][axis].same_as(size)


@pytest.mark.parametrize("worth", [True, False])
def test_programs_of_other_sizes_are_fused_as_that_of_the_bounds_is(
    worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, other = (stage(inverted(size), GroupOperations) for size in (12, 7))
    monkeypatch.setattr(merging, "WORTH", 1e9 if worth else 0.0)
    mods = fused_alike([(program.mod, program.ctx) for program in (whole, other)], [])
    assert bool(mods) == worth
    for mod in mods:
        (group,) = (Group(gvar.name_hint, function) for gvar, function in iter_groups(mod))
        assert group.anchor == ANCHOR


def test_a_model_of_any_size_is_fused_and_agrees_with_onnxruntime() -> None:
    proto = inverted(12)
    for tensor, channels in ((proto.graph.input[0], 16), (proto.graph.output[0], 192)):
        tensor.CopyFrom(value(tensor.name, ("N", channels, "H", "W")))
    bounds = {"N": (1, 3), "H": (1, 24), "W": (1, 20)}
    compiled = tvm_ext.compile(proto, dims=bounds, cache=False, records=None, threads=2)
    recipes = {kernel["recipe"] for kernel in compiled.report["kernels"]}
    assert recipes == {"expand_depthwise", "layout_transform"}
    sizes = [dict(zip("NHW", size, strict=True)) for size in ((1, 1, 1), (2, 13, 20), (1, 24, 17), (3, 7, 2))]
    assert tvm_ext.verify(compiled, proto, sizes=sizes).ok


def _at_run_time(shape: tuple[int, ...], axis: int, size: Any) -> tuple[Any, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])
