"""Initializers: sizes that do not fit, and NaN or Inf among the values."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tvm_ext.core.errors import ModelError, UnsupportedError
from tvm_ext.frontend.reading.tensors import array_of, count_nonfinite

from ..graphs import imported, linear_model, message, model, node, value


@pytest.mark.parametrize("change", [lambda raw: raw[:-4], lambda raw: raw + b"\0", lambda raw: b""])
def test_raw_data_of_another_size_names_the_tensor_and_both_sizes(change):
    proto = linear_model()
    weight = proto.graph.initializer[0]
    weight.raw_data = change(weight.raw_data)
    with pytest.raises(ModelError) as error:
        imported(proto)
    text = message(error.value)
    assert "initializer 'w'" in text and "(5, 3)" in text and "FLOAT" in text
    assert "needs 60 bytes" in text and f"has {len(weight.raw_data)}" in text


def test_typed_data_of_another_size():
    proto = linear_model()
    bias = proto.graph.initializer[1]
    bias.ClearField("raw_data")
    bias.float_data.extend([1.0, 2.0])
    with pytest.raises(ModelError, match=r"initializer 'b'.*needs 3 values and has 2"):
        imported(proto)


def test_a_tensor_of_an_attribute_is_named_by_its_node():
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "t")
    tensor.raw_data = tensor.raw_data[:-1]
    proto = model([node("Constant", [], ["y"], "const", value=tensor)], [], [value("y", [4])])
    with pytest.raises(ModelError, match="attribute 'value' of node 'const'"):
        imported(proto)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64", "bool", "uint16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_arrays_come_back_as_they_were(dtype, shape):
    array = (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape).astype(dtype)
    np.testing.assert_array_equal(array_of(numpy_helper.from_array(array, "t"), "t", "m"), array)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.BFLOAT16])
@pytest.mark.parametrize("raw", [False, True])
def test_small_types_count_their_bits(kind, raw):
    values = np.array([1, 2, 3, 4, 5], np.float32)
    if kind == TensorProto.BFLOAT16:
        data = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    else:
        data = np.array([0x21, 0x43, 0x05], np.uint8)
    tensor = onnx.TensorProto(name="t", data_type=kind, dims=[5])
    if raw:
        tensor.raw_data = data.tobytes()
    else:
        tensor.int32_data.extend(data.tolist())
    np.testing.assert_array_equal(array_of(tensor, "t", "m").astype(np.float32), values)


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.COMPLEX128])
def test_other_elements_are_refused_by_name(kind):
    with pytest.raises(UnsupportedError, match=TensorProto.DataType.Name(kind)):
        array_of(onnx.TensorProto(name="t", data_type=kind, dims=[1]), "initializer 't'", "m")


@pytest.mark.parametrize("kind", [0, 99])
def test_an_element_type_that_does_not_exist(kind):
    with pytest.raises(ModelError, match="initializer 't' has element type"):
        array_of(onnx.TensorProto(name="t", data_type=kind, dims=[1]), "initializer 't'", "m")


def test_nan_and_inf_are_allowed_and_reported_with_name_and_counts():
    proto = linear_model()
    weight = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weight[0, 0], weight[1, 1], weight[2, 2] = np.nan, np.inf, -np.inf
    proto.graph.initializer[0].raw_data = weight.tobytes()
    assert imported(proto).warnings == ("initializer 'w' holds 1 NaN and 2 Inf among 15 values",)
    assert imported(linear_model()).warnings == ()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_counting_works_for_every_float(dtype):
    assert count_nonfinite(np.array([1, np.nan, np.nan], np.float32).astype(dtype)) == "2 NaN among 3 values"
    assert count_nonfinite(np.array([1, 2], np.float32).astype(dtype)) == ""


def test_large_finite_values_and_integers_hold_nothing():
    assert count_nonfinite(np.full(4, np.finfo(np.float32).max, np.float32)) == ""
    assert count_nonfinite(np.array([1, 2])) == ""
    assert count_nonfinite(np.zeros((0, 2), np.float32)) == ""
