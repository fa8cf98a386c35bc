"""ResNets are torchvision's: names, shapes, size; and their numbers stay in a sane range."""

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.frontend import zoo

from .zoo_checks import activations, bn_shapes, initializer_shapes, learned_parameters, shapes_of

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
PARAMETERS = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032}


def torchvision_shapes(model):
    """torchvision's state dict by its rule, num_batches_tracked left out."""
    shapes = {"conv1.weight": (64, 3, 7, 7), **bn_shapes("bn1", 64)}
    wide = 4 if model == "resnet50" else 1
    before = 64
    for layer, blocks in enumerate(BLOCKS[model], start=1):
        width = 64 * 2 ** (layer - 1)
        for block in range(blocks):
            convs = [(before, width, 1), (width, width, 3), (width, 4 * width, 1)]
            if wide == 1:
                convs = [(before, width, 3), (width, width, 3)]
            name = f"layer{layer}.{block}"
            for i, (inputs, outputs, kernel) in enumerate(convs, start=1):
                shapes[f"{name}.conv{i}.weight"] = (outputs, inputs, kernel, kernel)
                shapes |= bn_shapes(f"{name}.bn{i}", outputs)
            if before != wide * width:
                shapes[f"{name}.downsample.0.weight"] = (wide * width, before, 1, 1)
                shapes |= bn_shapes(f"{name}.downsample.1", wide * width)
            before = wide * width
    return {**shapes, "fc.weight": (1000, before), "fc.bias": (1000,)}


@pytest.fixture(scope="module", params=sorted(BLOCKS))
def model(request):
    return request.param, zoo.MODELS[request.param]()


@pytest.fixture(scope="module")
def resnet18():
    return zoo.resnet18()


def test_it_is_valid_onnx(model):
    onnx.checker.check_model(model[1], full_check=True)


def test_initializers_are_torchvisions_state_dict_in_its_order(model):
    name, proto = model
    assert list(initializer_shapes(proto).items()) == list(torchvision_shapes(name).items())


def test_number_of_parameters(model):
    assert learned_parameters(model[1]) == PARAMETERS[model[0]]


def test_operators_and_names(resnet18):
    kinds = [n.op_type for n in resnet18.graph.node]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv": 20, "BatchNormalization": 20, "Relu": 17, "Add": 8, "MaxPool": 1, "GlobalAveragePool": 1,
        "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    names = [n.name for n in resnet18.graph.node]
    assert len(set(names)) == len(names)
    assert {"conv1", "layer1.0.conv1", "layer4.0.downsample.1", "layer4.1.relu", "avgpool", "fc"} <= set(names)


def test_version_1_5_has_the_stride_in_the_3x3():
    """The paper, and version 1, have it in the first 1x1."""
    convs = {n.name: n for n in zoo.resnet50().graph.node if n.op_type == "Conv"}
    strides = {name: list(onnx.helper.get_node_attr_value(node, "strides")) for name, node in convs.items()}
    assert [strides[f"layer2.0.conv{i}"] for i in (1, 2, 3)] == [[1, 1], [2, 2], [1, 1]]
    assert strides["layer2.0.downsample.0"] == [2, 2] and strides["layer2.1.conv2"] == [1, 1]


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_inputs_and_outputs(name):
    graph = zoo.MODELS[name](batch=3).graph
    assert shapes_of(graph.input) == {"input": (3, 3, 224, 224)}
    assert shapes_of(graph.output) == {"output": (3, 1000)}


def test_onnxruntime_runs_it_and_numbers_stay_sane_through_every_layer(model):
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    logits, inner = activations(model[1], {"input": x})
    assert logits.shape == (1, 1000) and 1 < np.abs(logits).max() < 30 and logits.std() > 0.5
    for name, activation in inner.items():
        assert 0.1 < activation.std() < 10, name
        assert np.abs(activation).max() < 100, name


def test_variances_are_positive(model):
    for tensor in model[1].graph.initializer:
        if tensor.name.endswith("running_var"):
            assert onnx.numpy_helper.to_array(tensor).min() > 0.1


def test_one_seed_gives_one_file_and_another_seed_another(resnet18):
    data = resnet18.SerializeToString(deterministic=True)
    assert zoo.resnet18(seed=0).SerializeToString(deterministic=True) == data
    assert zoo.resnet18(seed=1).SerializeToString(deterministic=True) != data


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, "1"])
def test_a_bad_batch_is_named(batch):
    with pytest.raises(OptionError, match="batch="):
        zoo.resnet18(batch=batch)
