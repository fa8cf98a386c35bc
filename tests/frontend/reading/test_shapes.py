"""Input shapes: fixed, bound, free, contradicted."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import ModelError, OptionError, UnsupportedError

from ..graphs import check_numbers, imported, message, model, node, relu_model, value


def two_inputs(a, b):
    return model([node("Add", ["a", "b"], ["y"], "sum")], [value("a", a), value("b", b)], [value("y", None)])


def refused(proto, kind=ModelError, **options):
    with pytest.raises(kind) as error:
        imported(proto, **options)
    return message(error.value)


def test_free_dimensions_are_listed_with_the_line_to_write():
    text = refused(relu_model(["batch", 3, "height", None]))
    assert "x: (batch, 3, height, ?)" in text
    assert "shapes={'x': (1, 3, height, dim3)} with numbers for height, dim3" in text


def test_a_line_that_binds_the_batch_can_be_pasted():
    text = refused(relu_model(["N", 5]))
    assert "fix: shapes={'x': (1, 5)}" in text
    line = text.split("fix: shapes=")[1]
    assert imported(relu_model(["N", 5]), shapes=eval(line)).inputs[0].shape == (1, 5)


def test_a_name_is_one_number_in_all_suggestions():
    text = refused(two_inputs(["batch", "width"], [2, "batch"]))
    assert "shapes={'a': (1, width), 'b': (2, 1)} with numbers for width" in text


def test_dimensions_without_a_name_are_told_apart():
    text = refused(two_inputs([None, None], [2, None]))
    assert "shapes={'a': (1, a_dim1), 'b': (2, b_dim1)} with numbers for a_dim1, b_dim1" in text


def test_one_free_dimension_is_written_as_a_tuple():
    assert "shapes={'x': (1,)}" in refused(relu_model([None]))


def test_an_input_without_a_rank():
    text = refused(relu_model(None))
    assert "x: any number of dimensions" in text and text.endswith("shapes={'x': (...)}")
    assert imported(relu_model(None), shapes={"x": (4, 2)}).outputs[0].shape == (4, 2)


def test_bound_dimensions_reach_inputs_and_outputs():
    proto = relu_model(["n", 3])
    translated = check_numbers(
        proto, {"x": np.linspace(-1, 1, 21, dtype=np.float32).reshape(7, 3)}, shapes={"x": (7, 3)}
    )
    assert translated.inputs[0].shape == translated.outputs[0].shape == (7, 3)


def test_a_name_bound_by_one_input_is_known_in_the_other():
    translated = imported(two_inputs(["n", 3], ["n", 3]), shapes={"a": (5, 3)})
    assert [spec.shape for spec in translated.inputs] == [(5, 3), (5, 3)]


def test_a_name_bound_to_two_numbers():
    text = refused(two_inputs(["n", 3], ["n", 3]), OptionError, shapes={"a": (5, 3), "b": (6, 3)})
    assert "'n'" in text and "5 in 'a'" in text and "6 in 'b'" in text


def test_only_what_stays_free_is_listed():
    text = refused(two_inputs(["n", 3], ["m", 3]), shapes={"a": (5, 3)})
    assert "b: (m, 3)" in text and "a: (" not in text


def test_a_fixed_dimension_cannot_be_changed():
    text = refused(relu_model(["n", 3]), OptionError, shapes={"x": (2, 4)})
    assert "'x'" in text and "dimension 1 to 3, not 4" in text and "(n, 3)" in text


def test_another_number_of_dimensions():
    assert "2 dimensions, not 3" in refused(relu_model(["n", 3]), OptionError, shapes={"x": (2, 3, 1)})


def test_an_unknown_input_lists_the_inputs():
    text = refused(two_inputs([2], [2]), OptionError, shapes={"aa": (2,)})
    assert "'aa'" in text and "did you mean 'a'" in text and "inputs: a, b" in text


def test_an_initializer_is_no_input():
    proto = model([node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])], {"w": np.ones(2, np.float32)})
    assert "'w' is an initializer" in refused(proto, OptionError, shapes={"w": (2,)})


def test_a_scalar_and_an_empty_dimension_are_fixed():
    assert imported(relu_model([])).inputs[0].shape == ()
    assert imported(relu_model([0, 3])).outputs[0].shape == (0, 3)


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.COMPLEX64])
def test_inputs_that_are_no_numbers_are_refused_by_name(kind):
    proto = model([node("Identity", ["x"], ["y"])], [value("x", [2], kind)], [value("y", [2], kind)])
    text = refused(proto, UnsupportedError)
    assert "'x'" in text and TensorProto.DataType.Name(kind) in text


def test_a_sequence_input_is_refused_by_name():
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    proto = model([node("SequenceLength", ["s"], ["y"])], [sequence], [value("y", [], TensorProto.INT64)])
    assert "input 's' is a sequence of tensors of" in refused(proto, UnsupportedError)


def test_an_input_without_an_element_type():
    proto = relu_model()
    proto.graph.input[0].type.tensor_type.elem_type = 0
    assert "'x' states no element type" in refused(proto)
