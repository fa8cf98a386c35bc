"""ResNet-18 is torchvision's: names, shapes, size; and its numbers stay in a sane range."""

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.frontend import zoo

from ..graphs import run_onnxruntime

BN = ("weight", "bias", "running_mean", "running_var")


def torchvision_shapes():
    """torchvision's state dict of resnet18 by its rule, num_batches_tracked left out."""
    shapes = {"conv1.weight": (64, 3, 7, 7), **{f"bn1.{key}": (64,) for key in BN}}
    before = 64
    for layer, channels in ((1, 64), (2, 128), (3, 256), (4, 512)):
        for block in (0, 1):
            name = f"layer{layer}.{block}"
            for i, inputs in ((1, before), (2, channels)):
                shapes[f"{name}.conv{i}.weight"] = (channels, inputs, 3, 3)
                shapes |= {f"{name}.bn{i}.{key}": (channels,) for key in BN}
            if before != channels:
                shapes[f"{name}.downsample.0.weight"] = (channels, before, 1, 1)
                shapes |= {f"{name}.downsample.1.{key}": (channels,) for key in BN}
            before = channels
    return {**shapes, "fc.weight": (1000, 512), "fc.bias": (1000,)}


@pytest.fixture(scope="module")
def proto():
    return zoo.resnet18()


def shapes_of(values):
    return {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}


def test_it_is_valid_onnx(proto):
    onnx.checker.check_model(proto, full_check=True)


def test_initializers_are_torchvisions_state_dict_in_its_order(proto):
    found = {t.name: tuple(t.dims) for t in proto.graph.initializer}
    assert list(found.items()) == list(torchvision_shapes().items())
    assert all(t.data_type == onnx.TensorProto.FLOAT for t in proto.graph.initializer)


def test_number_of_parameters(proto):
    learned = [t for t in proto.graph.initializer if ".running_" not in t.name]
    assert sum(int(np.prod(t.dims)) for t in learned) == 11_689_512


def test_operators_and_names(proto):
    kinds = [n.op_type for n in proto.graph.node]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv": 20, "BatchNormalization": 20, "Relu": 17, "Add": 8, "MaxPool": 1, "GlobalAveragePool": 1,
        "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    names = [n.name for n in proto.graph.node]
    assert len(set(names)) == len(names)
    assert {"conv1", "layer1.0.conv1", "layer4.0.downsample.1", "layer4.1.relu", "avgpool", "fc"} <= set(names)


def test_inputs_and_outputs():
    for batch in (1, 3):
        graph = zoo.resnet18(batch=batch).graph
        assert shapes_of(graph.input) == {"input": (batch, 3, 224, 224)}
        assert shapes_of(graph.output) == {"output": (batch, 1000)}


def test_onnxruntime_runs_it_and_numbers_stay_sane_through_every_layer(proto):
    every = onnx.ModelProto()
    every.CopyFrom(proto)
    inner = [n.output[0] for n in proto.graph.node[:-1]]
    every.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in inner)
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    logits, *activations = run_onnxruntime(every, {"input": x})
    assert logits.shape == (1, 1000) and 1 < np.abs(logits).max() < 30 and logits.std() > 0.5
    for name, activation in zip(inner, activations, strict=True):
        assert 0.1 < activation.std() < 10, name
        assert np.abs(activation).max() < 100, name


def test_variances_are_positive(proto):
    for tensor in proto.graph.initializer:
        if tensor.name.endswith("running_var"):
            assert onnx.numpy_helper.to_array(tensor).min() > 0.1


def test_one_seed_gives_one_file_and_another_seed_another(proto):
    data = proto.SerializeToString(deterministic=True)
    assert zoo.resnet18(seed=0).SerializeToString(deterministic=True) == data
    assert zoo.resnet18(seed=1).SerializeToString(deterministic=True) != data


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, "1"])
def test_a_bad_batch_is_named(batch):
    with pytest.raises(OptionError, match="batch="):
        zoo.resnet18(batch=batch)
