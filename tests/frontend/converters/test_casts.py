"""Casts of floats of 8 bits and integers of 2 and 4 against ml_dtypes; the same bits as another dtype."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext

from ..graphs import imported, model, node, run_tvm, value

RNG = np.random.default_rng(9)
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
NARROW = ("int2", "uint2", "int4", "uint4")


def cast_model(x, to, op_type="Cast", **attributes):
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (x.dtype, to)]
    nodes = [node(op_type, ["x"], ["y"], to=kinds[1], **attributes)]
    return model(nodes, [value("x", x.shape, kinds[0])], [value("y", x.shape, kinds[1])], opset=26)


def cast(x, to, **attributes):
    compiled = tvm_ext.compile(cast_model(x, to, **attributes), cache=False, threads=1)
    found = compiled.run({"x": x})["y"]
    assert found.dtype == np.dtype(to)
    return found


@pytest.mark.parametrize("name", FLOAT8)
def test_every_float8(name):
    kind = getattr(ml_dtypes, name)
    every = np.arange(256, dtype=np.uint8).view(kind)
    np.testing.assert_array_equal(cast(every, "float32"), every.astype(np.float32))


@pytest.mark.parametrize("name", FLOAT8)
def test_float32_to_float8_rounds_to_the_nearest(name):
    kind = getattr(ml_dtypes, name)
    values = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    x = np.concatenate([values, middle, np.nextafter(middle, np.float32(9e9)), RNG.standard_normal(99)])
    x = x.astype(np.float32)
    found, expected = cast(x, kind), x.astype(kind)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", FLOAT8)
def test_what_is_too_large(name, saturate):
    kind = getattr(ml_dtypes, name)
    largest = float(ml_dtypes.finfo(kind).max)
    found = cast(np.float32([np.nan, np.inf, -np.inf, 1e9, -1e9]), kind, saturate=saturate).astype(np.float32)
    beyond = largest if saturate else np.inf if name == "float8_e5m2" else np.nan
    np.testing.assert_array_equal(np.abs(found), [np.nan, *[beyond] * 4])
    if saturate:
        assert (np.sign(found[1:]) == [1, -1, 1, -1]).all()


@pytest.mark.parametrize("name", NARROW)
def test_narrow_integers(name):
    kind = getattr(ml_dtypes, name)
    low, high = int(ml_dtypes.iinfo(kind).min), int(ml_dtypes.iinfo(kind).max)
    every = np.arange(low, high + 1)
    np.testing.assert_array_equal(cast(every.astype(kind), "float32"), every)
    np.testing.assert_array_equal(cast(every.astype(np.float32), kind).astype(int), every)
    wide = np.arange(-20, 20, dtype=np.int32)
    np.testing.assert_array_equal(cast(wide, kind).astype(int), (wide - low) % (high - low + 1) + low)


@pytest.mark.parametrize(("given", "to"), [("float32", "int32"), ("int64", "float64"), ("uint16", "float16")])
def test_the_same_bits(given, to):
    x = RNG.integers(0, 1000, (3, 5)).astype(given)
    (found,) = run_tvm(imported(cast_model(x, to, "BitCast")), {"x": x})
    np.testing.assert_array_equal(found, x.view(to))


def test_floats_of_4_bits_are_refused():
    proto = cast_model(np.float32([1]), "float32")
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT4E2M1
    with pytest.raises(tvm_ext.errors.UnsupportedError, match="FLOAT4E2M1"):
        tvm_ext.compile(proto, cache=False)
