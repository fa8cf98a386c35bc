"""What the small budget of the tests takes of ResNet-18: its first layers, of small images."""

import onnx

#: Height and width of an image.
SIDE = 56


def first_layers(path):
    """Cut a file of ResNet-18 down to its stem and first block, of images of `SIDE` x `SIDE`."""
    onnx.utils.extract_model(path, path, ["input"], ["layer1.0.relu_1.out"])
    model = onnx.load(path)
    del model.graph.value_info[:]
    for value, side in ((model.graph.input[0], SIDE), (model.graph.output[0], SIDE // 4)):
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.dim_value = side
    onnx.save(model, path)
