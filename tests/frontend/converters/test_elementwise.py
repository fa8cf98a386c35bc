"""Elementwise converters against onnxruntime, and numpy where it lacks the dtype."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from ..graphs import check_numbers, imported, model, node, run_onnxruntime, run_tvm, value

RNG = np.random.default_rng(5)


def binary(op_type, x, y, opset=17, **attributes):
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in (x, y)]
    inputs = [value("x", x.shape, kinds[0]), value("y", y.shape, kinds[1])]
    shape = np.broadcast_shapes(x.shape, y.shape)
    return model([node(op_type, ["x", "y"], ["z"], **attributes)], inputs, [value("z", shape, kinds[0])], opset=opset)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift_by_any_number(dtype, direction):
    width = np.iinfo(dtype).bits
    x = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (4, 3), dtype, endpoint=True)
    y = np.array([0, width - 1, width], dtype)
    translated = imported(binary("BitShift", x, y, opset=28 if dtype.startswith("int") else 17, direction=direction))
    safe = (x.astype(object) << y.astype(object)) if direction == "LEFT" else (x.astype(object) >> y.astype(object))
    expected = np.array([int(v) & (2**width - 1) for v in safe.flat], f"uint{width}").reshape(x.shape).view(dtype)
    np.testing.assert_array_equal(run_tvm(translated, {"x": x, "y": y})[0], expected)


@pytest.mark.parametrize("exponent", [np.int32([0, 1, 2, 5, 9]), np.float32([0, 0.5, 2, -1, 3]), np.int64([3])])
@pytest.mark.parametrize("base", [np.int32([[-3], [1], [7]]), np.int64([[2]]), np.float32([[-2], [0.5]])])
def test_power_of_any_two_dtypes(base, exponent):
    with np.errstate(all="ignore"):
        if exponent.dtype.kind == "f" and base.dtype.kind == "i":
            base = np.abs(base)
            exponent = np.float32([0, 2, 3])
    check_numbers(binary("Pow", base, exponent), {"x": base, "y": exponent})


def test_a_negative_exponent_of_integers_is_cut_off():
    x, y = np.int32([1, -1, -1, 2, 7]), np.int32([-3, -3, -2, -1, -5])
    assert run_tvm(imported(binary("Pow", x, y)), {"x": x, "y": y})[0].tolist() == [1, -1, 1, 0, 0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_mod_of_floats_at_the_edges(dtype):
    x = np.array([5, -5, 5, -5, 0, -0.0, 3, -3, np.inf, 1, np.nan, 7.25], dtype)
    y = np.array([3, 3, -3, -3, 2, -2, np.inf, np.inf, 2, 0, 1, 0.5], dtype)
    with np.errstate(all="ignore"):
        expected = np.mod(x, y)
    (output,) = run_tvm(imported(binary("Mod", x, y, opset=28)), {"x": x, "y": y})
    np.testing.assert_array_equal(output, expected)
    np.testing.assert_array_equal(np.signbit(output[~np.isnan(output)]), np.signbit(expected[~np.isnan(expected)]))


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_is_inf_of_a_sign(positive, negative):
    nodes = [node("IsInf", ["x"], ["y"], detect_positive=positive, detect_negative=negative)]
    proto = model(nodes, [value("x", [5])], [value("y", [5], TensorProto.BOOL)])
    check_numbers(proto, {"x": np.float32([np.inf, -np.inf, 1, np.nan, 0])})


def test_sums_of_float16_are_rounded_once():
    x = np.full((1, 4096), 0.1, np.float16)
    proto = model([node("ReduceSum", ["x"], ["y"])], [value("x", x.shape, TensorProto.FLOAT16)],
                  [value("y", [1, 1], TensorProto.FLOAT16)])  # fmt: skip
    expected = np.float16(x.astype(np.float64).sum())
    assert run_tvm(imported(proto), {"x": x})[0].item() == expected


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("shape", [(), (3, 7)])
@pytest.mark.parametrize("op_type", ["Selu", "Celu", "Elu"])
def test_exponential_units_of_any_shape_and_type(op_type, shape, kind):
    if op_type == "Celu" and kind != TensorProto.FLOAT:
        pytest.skip("Celu has float32 only")
    x = np.asarray(RNG.standard_normal(shape) * 3).astype("float32" if kind == TensorProto.FLOAT else "float16")
    alpha = {} if op_type == "Selu" else {"alpha": 0.75}
    proto = model([node(op_type, ["x"], ["y"], **alpha)], [value("x", shape, kind)], [value("y", shape, kind)])
    ours, theirs = run_tvm(imported(proto), {"x": x})[0], run_onnxruntime(proto, {"x": x})[0]
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    tolerance = 1e-6 if kind == TensorProto.FLOAT else 4e-3
    np.testing.assert_allclose(ours.astype("float32"), theirs.astype("float32"), rtol=tolerance, atol=tolerance)


def test_erf_of_integers_is_cut_off():
    x = np.int32([-3, -1, 0, 1, 3])
    proto = model([node("Erf", ["x"], ["y"])], [value("x", [5], 6)], [value("y", [5], 6)], opset=12)
    np.testing.assert_array_equal(run_tvm(imported(proto), {"x": x})[0], [0, 0, 0, 0, 0])


def test_clip_by_the_largest_unsigned_numbers():
    x, high = np.uint64([0, 2**63 + 3, 2**64 - 1]), np.uint64(2**63 + 7)
    kind = TensorProto.UINT64
    proto = model([node("Clip", ["x", "", "h"], ["y"])], [value("x", [3], kind)], [value("y", [3], kind)], {"h": high})
    np.testing.assert_array_equal(run_tvm(imported(proto), {"x": x})[0], np.minimum(x, high))


def test_integers_to_powers_beyond_the_width_of_the_type() -> None:
    bases, exponents = (
        a.reshape(-1) for a in np.meshgrid(np.array([0, 1, -1, 2, -6]), [0, 63, 64, 65, 127, 128, 1001])
    )
    ends = [value(name, bases.shape, TensorProto.INT64) for name in ("x", "e", "y")]
    proto = model([node("Pow", ["x", "e"], ["y"])], ends[:2], ends[2:])
    (powers,) = run_tvm(imported(proto), {"x": bases, "e": exponents})
    np.testing.assert_array_equal(powers, np.power(bases, exponents))
