"""Frozen inputs are initializers: imported, compiled, verified and cached as such."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tvm_ext.core.errors import OptionError, UnsupportedError
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.cache import cache_key

from ..graphs import imported, message, model, node, run_tvm, value

X = np.arange(12, dtype=np.float32).reshape(3, 4)
SHAPE = np.array([2, -1])


def reshape_model(dims=(2,)):
    inputs = [value("x", [3, 4]), value("shape", dims, TensorProto.INT64)]
    return model([node("Reshape", ["x", "shape"], ["y"])], inputs, [value("y", None)])


def test_a_frozen_input_is_an_input_no_more():
    proto = reshape_model()
    before = proto.SerializeToString()
    compiled = tvm_ext.compile(proto, freeze={"shape": SHAPE}, cache=False)
    assert [spec.name for spec in compiled.inputs] == ["x"]
    np.testing.assert_array_equal(compiled.run({"x": X})["y"], X.reshape(2, 6))
    assert proto.SerializeToString() == before


def test_verify_gives_the_reference_what_was_frozen():
    proto = reshape_model()
    compiled = tvm_ext.compile(proto, freeze={"shape": SHAPE}, cache=False)
    assert tvm_ext.verify(compiled, proto).ok


def test_a_default_value_is_replaced():
    nodes = [node("Mul", ["x", "k"], ["y"])]
    proto = model(nodes, [value("x", [3]), value("k", [1])], [value("y", [3])], {"k": np.float32([2])})
    translated = imported(proto, freeze={"k": 5.0})
    assert [spec.name for spec in translated.inputs] == ["x"]
    assert run_tvm(translated, {"x": np.float32([1, 2, 3])})[0].tolist() == [5, 10, 15]


def test_the_value_is_part_of_the_cache_key():
    machine = Machine.detect("x86-64-v2", 1)
    keys = {cache_key("a" * 64, machine, CompileOptions.of(freeze=f), {}) for f in ({}, {"k": 1}, {"k": 2}, {"j": 1})}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("freeze", "part"),
    [
        ({"shap": SHAPE}, "did you mean 'shape'"),
        ({"shape": np.array([2, 3, 2])}, r"has shape \(2,\), not \(3,\)"),
        ({"shape": np.array([2.5, 1])}, "is int64"),
    ],
)
def test_what_does_not_fit_is_refused(freeze, part):
    with pytest.raises(OptionError, match=part):
        imported(reshape_model(), freeze=freeze)


def test_a_sequence_cannot_be_frozen():
    proto = reshape_model()
    kind = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))
    proto.graph.input.append(onnx.helper.make_value_info("s", kind))
    with pytest.raises(UnsupportedError) as info:
        imported(proto, freeze={"s": [1.0]})
    assert "sequence" in message(info.value)
