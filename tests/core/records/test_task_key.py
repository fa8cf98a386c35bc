"""Equal work has equal keys, other work has not; a key is text, and readable whatever it holds."""

import json

import numpy as np
import onnx
import pytest

from tests.core.log_rows import AUTOTVM, CONV
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import stage
from tvm_ext.core.graph.relax_graph import iter_groups
from tvm_ext.core.group import Group
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.passes.lowering.group_operations import GroupOperations


def conv(names: str = "x w b c y", channels: int = 8, stride: int = 1, act: str = "Relu", seed: int = 0,
         **more: float) -> onnx.ModelProto:  # fmt: skip
    x, w, b, c, y = names.split()
    weights = {w: random(channels, 3, 3, 3, scale=0.2, seed=seed), b: random(channels, seed=seed)}
    nodes = [node("Conv", f"{x} {w} {b}", c, strides=[stride, stride]), node(act, c, y, **more)]
    side = (15 - 3) // stride + 1
    return model(nodes, [value(x, (1, 3, 15, 15))], [value(y, (1, channels, side, side))], weights)


def matmul(constant: bool) -> onnx.ModelProto:
    inputs = [value("x", (4, 6))] + ([] if constant else [value("w", (6, 5))])
    weights = {"w": random(6, 5)} if constant else {}
    return model([node("MatMul", "x w", "y")], inputs, [value("y", (4, 5))], weights)


def key(proto: onnx.ModelProto) -> TaskKey:
    mod = stage(proto, GroupOperations).mod
    (keys,) = [TaskKey.of_group(Group(gvar.name_hint, function)) for gvar, function in iter_groups(mod)]
    return keys


def test_names_and_weights_are_no_part_of_it() -> None:
    first = key(conv())
    assert first == key(conv("input conv1.weight conv1.bias hidden out", seed=1))
    assert hash(first) == hash(key(conv())) and first.op == "relax.nn.conv2d"


def test_what_is_computed_is() -> None:
    others = [
        conv(), conv(channels=16), conv(stride=2), conv(act="Sigmoid"), conv(act="LeakyRelu", alpha=0.1),
        conv(act="LeakyRelu", alpha=0.2), matmul(True), matmul(False),
    ]  # fmt: skip
    assert len({key(proto) for proto in others}) == len(others)


def test_the_text_is_stable_json() -> None:
    text = key(conv(stride=2))
    assert json.loads(text.text) == text.args and "\n" not in text.text
    assert TaskKey.of(text.op, text.args) == text
    assert TaskKey.of("a", [{"y": 1, "x": 2}]) == TaskKey.of("a", [{"x": 2, "y": 1}])
    assert text.args[0] == ["TENSOR", [1, 3, 15, 15], "float32"] and text.args[1][-1] == "constant"


@pytest.mark.parametrize("wrong", [[np.float32(1)], [object()], [{1, 2}]])
def test_only_plain_values_are_taken(wrong: list[object]) -> None:
    with pytest.raises(TypeError):
        TaskKey.of("a", wrong)


def test_no_key_has_a_number_that_json_has_not() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        TaskKey.of("a", [float("nan")])


def test_short_names_for_people() -> None:
    assert CONV.short == "conv2d 1x64x56x56 64x64x3x3 stride 2 + relu"
    assert key(conv()).short.startswith("conv2d 1x3x15x15 8x3x3x3 + ")
    assert Record.from_row(AUTOTVM[0]).task.short == "template:conv2d_NCHWc.x86 1x3x224x224 64x3x7x7"
    assert TaskKey.of("template:tiled", [512, 256]).short == "template:tiled 512 256"


@pytest.mark.parametrize(
    "args", [[], [[]], [["TENSOR"]], [["TENSOR", 5]], [["TENSOR", {}]], [[1, 1]], [[None, {"strides": 5}]], [{}, None],
             [["a", {"strides": [None, [1]]}]], [[["TENSOR", [1]]]]],
)  # fmt: skip
def test_short_takes_whatever_a_log_may_hold(args: list[object]) -> None:
    assert isinstance(TaskKey.of("op", args).short, str)
