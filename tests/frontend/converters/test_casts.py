"""Casts of floats of 8 bits and integers of 2 and 4 against ml_dtypes, what does not fit, and the same bits."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext

from ..graphs import imported, model, node, run_onnxruntime, run_tvm, value

RNG = np.random.default_rng(9)
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
NARROW = ("int2", "uint2", "int4", "uint4")


def cast_model(x, to, op_type="Cast", **attributes):
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (x.dtype, to)]
    nodes = [node(op_type, ["x"], ["y"], to=kinds[1], **attributes)]
    return model(nodes, [value("x", x.shape, kinds[0])], [value("y", x.shape, kinds[1])], opset=26)


def cast(x, to, **attributes):
    compiled = tvm_ext.compile(cast_model(x, to, **attributes), cache=False, threads=1)
    result = compiled.run({"x": x})["y"]
    assert result.dtype == np.dtype(to)
    return result


@pytest.mark.parametrize("name", FLOAT8)
def test_every_float8(name):
    kind = getattr(ml_dtypes, name)
    every = np.arange(256, dtype=np.uint8).view(kind)
    np.testing.assert_array_equal(cast(every, "float32"), every.astype(np.float32))


@pytest.mark.parametrize("to", NARROW)
@pytest.mark.parametrize("name", FLOAT8)
def test_float8_to_narrow_integers(name, to):
    x = np.float32([0, 1, 1.75, 0.5] + ([] if to.startswith("u") else [-1, -1.5])).astype(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(cast(x, getattr(ml_dtypes, to)).astype(int), x.astype(np.float32).astype(int))


@pytest.mark.parametrize("name", FLOAT8)
def test_float32_to_float8_rounds_to_the_nearest(name):
    kind = getattr(ml_dtypes, name)
    values = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    x = np.concatenate([values, middle, np.nextafter(middle, np.float32(9e9)), RNG.standard_normal(99)])
    x = x.astype(np.float32)
    outputs, expected = cast(x, kind), x.astype(kind)
    np.testing.assert_array_equal(outputs.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", FLOAT8)
def test_what_is_too_large(name, saturate):
    kind = getattr(ml_dtypes, name)
    largest = float(ml_dtypes.finfo(kind).max)
    outputs = cast(np.float32([np.nan, np.inf, -np.inf, 1e9, -1e9]), kind, saturate=saturate).astype(np.float32)
    beyond = largest if saturate else np.inf if name == "float8_e5m2" else np.nan
    np.testing.assert_array_equal(np.abs(outputs), [np.nan, *[beyond] * 4])
    if saturate:
        assert (np.sign(outputs[1:]) == [1, -1, 1, -1]).all()


@pytest.mark.parametrize("name", NARROW)
def test_narrow_integers(name):
    kind = getattr(ml_dtypes, name)
    low, high = int(ml_dtypes.iinfo(kind).min), int(ml_dtypes.iinfo(kind).max)
    every = np.arange(low, high + 1)
    np.testing.assert_array_equal(cast(every.astype(kind), "float32"), every)
    np.testing.assert_array_equal(cast(every.astype(np.float32), kind).astype(int), every)
    wide = np.arange(-20, 20, dtype=np.int32)
    np.testing.assert_array_equal(cast(wide, kind).astype(int), (wide - low) % (high - low + 1) + low)


@pytest.mark.parametrize(("numbers", "to"), [("float32", "int32"), ("int64", "float64"), ("uint16", "float16")])
def test_the_same_bits(numbers, to):
    x = RNG.integers(0, 1000, (3, 5)).astype(numbers)
    (output,) = run_tvm(imported(cast_model(x, to, "BitCast")), {"x": x})
    np.testing.assert_array_equal(output, x.view(to))


def test_floats_of_4_bits_are_refused():
    proto = cast_model(np.float32([1]), "float32")
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT4E2M1
    with pytest.raises(tvm_ext.errors.UnsupportedError, match="FLOAT4E2M1"):
        tvm_ext.compile(proto, cache=False)


# ------------------------------------------------------------ floats to whole numbers
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
EDGES = [
    np.nan, np.inf, -np.inf, 0.0, -0.0, 0.75, -0.75, -1.5, 127.9, 128, -128.9, -129, 255.9, 256, 300, -300, 32768,
    -32769, 65535.5, 65536, 2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 3e9, 2.0**32 - 256, 2.0**32, -3e9,
    2.0**63 - 2.0**39, 2.0**63, -(2.0**63), -(2.0**63) - 2.0**40, 1.25 * 2.0**63, 2.0**64 - 2.0**40, 2.0**64, 1e30,
]  # fmt: skip


def cut(x, to):
    """Cut off by Python's integers: what does not fit the register is its least number; the low bits are left."""
    bits = 64 if to in ("uint32", "int64", "uint64") else 32
    wide = x.astype("float64")
    if to == "uint64" and wide >= 2.0**63:
        whole = int(wide) if wide < 2.0**64 else 0
    else:
        whole = int(wide) if abs(wide) < 2.0 ** (bits - 1) else -(2 ** (bits - 1))
    return np.uint64(whole % 2**64).astype(f"uint{np.iinfo(to).bits}").astype(to)


@pytest.mark.parametrize("numbers", ["float32", "float64", "float16", "bfloat16"])
def test_what_does_not_fit_a_whole_number(numbers):
    """One answer of kernels, of constants at import and of folded ones: that of onnxruntime on x86-64."""
    with np.errstate(over="ignore"):
        x = np.array(EDGES).astype(getattr(ml_dtypes, numbers, numbers))
    kinds = {to: helper.np_dtype_to_tensor_dtype(np.dtype(to)) for to in WHOLE}
    plain = [node("Cast", ["x"], [to], to=kind) for to, kind in kinds.items()]
    sizes = [node("Abs", ["x"], ["a"]), *(node("Cast", ["a"], [f"abs {to}"], to=kind) for to, kind in kinds.items())]
    outputs = [value(f"{what}{to}", x.shape, kind) for what in ("", "abs ") for to, kind in kinds.items()]
    inputs = [value("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))]
    run_time = tvm_ext.compile(model(plain, inputs, outputs[:8]), cache=False).run({"x": x})
    folded = tvm_ext.compile(model([*plain, *sizes], [], outputs, {"x": x}), cache=False).run({})
    for number, to in enumerate(WHOLE):
        wanted = np.array([cut(v, to) for v in x])
        np.testing.assert_array_equal(run_time[to], wanted)
        np.testing.assert_array_equal(folded[to], wanted)
        np.testing.assert_array_equal(folded[f"abs {to}"], [cut(v, to) for v in np.abs(x)])
        if (
            numbers != "bfloat16" and to != "uint32"
        ):  # of which onnxruntime gives two answers, by the place in the tensor
            proto = model([plain[number]], inputs, [outputs[number]])
            np.testing.assert_array_equal(run_onnxruntime(proto, {"x": x})[0], wanted)


@pytest.mark.parametrize("numbers", ["float32", "float64", "float16", "bfloat16"])
def test_nan_is_true(numbers):
    x = np.array([np.nan, 0.0, -0.0, np.inf, 0.5, -0.25]).astype(getattr(ml_dtypes, numbers, numbers))
    wanted = [True, False, False, True, True, True]
    assert cast(x, "bool").tolist() == wanted
    program = tvm_ext.compile(
        model(cast_model(x, "bool").graph.node, [], [value("y", x.shape, 9)], {"x": x}), cache=False
    )
    assert program.run({})["y"].tolist() == wanted
