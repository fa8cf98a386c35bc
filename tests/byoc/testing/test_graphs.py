"""ONNX models from lines of text, and the models of the kit."""

import numpy as np
import onnx
import pytest

from tvm_ext.byoc.testing import Tensor, graph
from tvm_ext.byoc.testing.models import float_models, quantized_models
from tvm_ext.byoc.testing.subject import reference

EVERY = (*float_models(), *quantized_models())


def test_a_line_is_a_node() -> None:
    lines = ["m = Conv(x, w) strides=[2,1] group=2", "a, b = Split(m) axis=1", "y = Relu(a)"]
    model = graph(lines, {"x": Tensor((1, 4, 5, 5))}, {"w": np.ones((4, 2, 1, 1), np.float32)}, outputs=["m"])
    conv, split, _ = model.graph.node
    assert (conv.op_type, conv.name, list(conv.input)) == ("Conv", "conv_m", ["x", "w"])
    assert {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute} == {"strides": [2, 1], "group": 2}
    assert list(split.output) == ["a", "b"]
    assert [output.name for output in model.graph.output] == [
        "m",
        "b",
        "y",
    ]  # what nothing reads, and what was asked for
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [1, 4, 3, 5]


@pytest.mark.parametrize("line", ["Relu(x)", "y = Relu x", "y = relu(x", ""])
def test_a_line_that_is_no_node_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="is needed"):
        graph([line], {"x": Tensor((1,))}, {})


def test_models_have_names_and_options_of_their_own() -> None:
    assert len({model.name for model in EVERY}) == len(EVERY)
    symbolic = [model for model in EVERY if model.specialize]
    assert [model.compile_options for model in symbolic] == [{"shapes": {"x": ("N", 7)}, "specialize": {"N": (1, 3)}}]
    assert all(not model.compile_options for model in EVERY if not model.specialize)


def test_quantized_models_have_half_way_cases_and_saturate_little() -> None:
    """What is rounded to even, and what is rounded away from zero, are told apart; most values are inside."""
    by_name = {model.name: model for model in quantized_models()}
    model = onnx.ModelProto()
    model.CopyFrom(by_name["int8-dense"].proto)
    model.graph.output.append(onnx.helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, None))
    x = np.random.default_rng(0).standard_normal((11, 17)).astype(np.float32)
    kept = type(by_name["int8-dense"])("", "", model)
    steps = reference(kept, {"x": x})["m"] * 4
    assert (steps % 1 == 0.5).any() and (abs(steps) < 127).mean() > 0.8
