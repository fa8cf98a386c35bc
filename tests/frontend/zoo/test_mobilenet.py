"""MobileNetV2 is torchvision's: names, shapes, size, depthwise convolutions; and its numbers stay in a sane range."""

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.frontend import zoo

from .zoo_checks import activations, bn_shapes, initializer_shapes, learned_parameters, shapes_of

# expansion, channels, blocks, stride of the first
PAPER = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def torchvision_shapes():
    """torchvision's state dict by its rule, num_batches_tracked left out."""
    shapes = {"features.0.0.weight": (32, 3, 3, 3), **bn_shapes("features.0.1", 32)}
    before, number = 32, 0
    for expansion, channels, blocks, _ in PAPER:
        for _ in range(blocks):
            number += 1
            name, wide, part = f"features.{number}.conv", expansion * before, 0
            if expansion > 1:
                shapes |= {f"{name}.0.0.weight": (wide, before, 1, 1), **bn_shapes(f"{name}.0.1", wide)}
                part = 1
            shapes |= {f"{name}.{part}.0.weight": (wide, 1, 3, 3), **bn_shapes(f"{name}.{part}.1", wide)}
            shapes |= {f"{name}.{part + 1}.weight": (channels, wide, 1, 1)}
            shapes |= bn_shapes(f"{name}.{part + 2}", channels)
            before = channels
    shapes |= {"features.18.0.weight": (1280, 320, 1, 1), **bn_shapes("features.18.1", 1280)}
    return {**shapes, "classifier.1.weight": (1000, 1280), "classifier.1.bias": (1000,)}


@pytest.fixture(scope="module")
def proto():
    return zoo.mobilenet_v2()


def test_it_is_valid_onnx(proto):
    onnx.checker.check_model(proto, full_check=True)
    assert shapes_of(proto.graph.output) == {"output": (1, 1000)}
    assert shapes_of(zoo.mobilenet_v2(batch=2).graph.input) == {"input": (2, 3, 224, 224)}


def test_initializers_are_torchvisions_state_dict_in_its_order(proto):
    assert list(initializer_shapes(proto).items()) == list(torchvision_shapes().items())
    assert learned_parameters(proto) == 3_504_872


def test_operators(proto):
    kinds = [n.op_type for n in proto.graph.node]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv": 52, "BatchNormalization": 52, "Clip": 35, "Add": 10, "Constant": 2, "GlobalAveragePool": 1,
        "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    convs = [n for n in proto.graph.node if n.op_type == "Conv"]
    attributes = [{a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} for n in convs]
    assert sum(a["group"] > 1 for a in attributes) == 17
    # the first convolution, and the first block of each stage of stride 2
    assert sum(a["strides"] == [2, 2] for a in attributes) == 5


def test_the_activation_is_relu6(proto):
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    _, inner = activations(proto, {"input": 100 * x})
    clipped = [inner[n.name] for n in proto.graph.node if n.op_type == "Clip"]
    assert len(clipped) == 35 and all(v.min() == 0 and v.max() <= 6 for v in clipped)
    assert clipped[0].max() == 6


def test_onnxruntime_runs_it_and_numbers_stay_sane_through_every_layer(proto):
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    logits, inner = activations(proto, {"input": x})
    assert logits.shape == (1, 1000) and 1 < np.abs(logits).max() < 30 and logits.std() > 0.5
    for name, activation in inner.items():
        assert 0.1 < activation.std() < 10, name
        assert np.abs(activation).max() < 100, name


def test_a_bad_batch_is_named():
    with pytest.raises(OptionError, match="batch="):
        zoo.mobilenet_v2(batch=0)
