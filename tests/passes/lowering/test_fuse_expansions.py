"""fuse-expansions: a pointwise and a depthwise convolution become one group where that pays, and only there."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees, stage
from tvm_ext.core.fusion import no_fusion
from tvm_ext.passes.lowering import fuse_expansions
from tvm_ext.passes.lowering.fuse_expansions import FuseExpansions


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the estimates say depends on the machine."""
    monkeypatch.setattr(fuse_expansions, "WORTH", 1e9)


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
    found = stage(inverted(12), FuseExpansions)
    assert found.groups == ["conv2d relu conv2d relu"]
    assert len(found.fired) == 1


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
    found = stage(proto, FuseExpansions, **options)
    assert found.report.fired == () and len(found.groups) >= 2


def test_says_what_it_expected_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_expansions, "WORTH", 0.0)
    found = stage(inverted(12), FuseExpansions)
    assert len(found.groups) == 2
    assert [d for d in found.skipped.values() if "as one kernel" in d]
