"""Resize in every mode against onnxruntime, and where that differs from ONNX its reference evaluator."""

import functools

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from tests.oracles.reference import session_of

from ...graphs import check_numbers, imported, model, node, run_tvm, value

RNG = np.random.default_rng(6)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")


def check(shape, scales=None, sizes=None, roi=None, opset=19, evaluator=ReferenceEvaluator, **attributes):
    weights = {"roi": np.float32(roi or []), "scales": np.float32(scales or [])}
    inputs = ["x", "roi", "scales"]
    if sizes is not None:
        weights["sizes"] = np.int64(sizes)
        inputs.append("sizes")
    proto = model(
        [node("Resize", inputs, ["y"], **attributes)], [value("x", shape)], [value("y", None)], weights, opset
    )
    x = RNG.standard_normal(shape).astype(np.float32)
    (expected,) = evaluator(proto).run(None, {"x": x})
    (output,) = run_tvm(imported(proto), {"x": x})
    assert output.shape == expected.shape
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_empty_scales_beside_sizes():
    """As PyTorch exports them to opset 11."""
    check([1, 2, 3, 4], None, [1, 2, 5, 7], opset=11, mode="linear", coordinate_transformation_mode="align_corners")


SCALES = (1.0, 1.0, 2.0, 0.6), (1.0, 1.0, 0.75, 3.0)


@pytest.mark.parametrize(
    ("mode", "coordinates", "scales"),
    [(mode, coordinates, SCALES[(i + j) % 2]) for i, mode in enumerate(("nearest", "linear", "cubic"))
     for j, coordinates in enumerate(COORDINATES)],
)  # fmt: skip
def test_modes_and_coordinates(mode, coordinates, scales):
    check([1, 2, 5, 7], scales, mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_axis_of_one_element(mode):
    """That of `pytorch_half_pixel` lies at 0, by ONNX's text and onnxruntime; its evaluator says -0.5."""
    for coordinates in COORDINATES:
        how = {"mode": mode, "coordinate_transformation_mode": coordinates}
        check([1, 1, 5, 3], sizes=[1, 1, 1, 4], evaluator=functools.partial(session_of, optimized=False), **how)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    "attributes", [{"antialias": 1}, {"exclude_outside": 1}, {"antialias": 1, "exclude_outside": 1}]
)
def test_what_stands_at_the_edges(mode, attributes):
    if mode == "linear" and "exclude_outside" in attributes:
        return
    check([1, 1, 9, 11], (1.0, 1.0, 0.6, 0.5), mode=mode, **attributes)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(rounding):
    check([2, 3, 8], (1.0, 1.0, 1.7), mode="nearest", nearest_mode=rounding)


@pytest.mark.parametrize("ratio", [2, 5, 6, 14])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", ["asymmetric", "align_corners"])
def test_the_middle_of_two_elements(coordinates, rounding, ratio):
    """At whole ratios coordinates are integers, or lie between two: no error of float32 decides."""
    scales = (1.0, 1.0, ratio, ratio)
    check([1, 1, 5, 7], scales, mode="nearest", nearest_mode=rounding, coordinate_transformation_mode=coordinates)


def test_a_crop_with_a_value_outside():
    check([1, 1, 6, 5], sizes=[1, 1, 4, 3], roi=[0, 0, -0.2, 0.3, 1, 1, 0.8, 1.4], mode="linear",
          coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0)  # fmt: skip


@pytest.mark.parametrize("coordinates", ["half_pixel", "half_pixel_symmetric", "asymmetric"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
def test_sizes_of_some_axes(policy, coordinates):
    check([1, 2, 5, 7], sizes=[8, 9], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy,
          coordinate_transformation_mode=coordinates)  # fmt: skip


def test_three_dimensions():
    check([1, 1, 3, 4, 5], (1.0, 1.0, 2.0, 1.5, 0.8), mode="linear")


def test_integers_are_not_interpolated():
    proto = model([node("Resize", ["x", "", "s"], ["y"], mode="cubic")], [value("x", [1, 1, 4, 4], TensorProto.UINT8)],
                  [value("y", None, TensorProto.UINT8)], {"s": np.float32([1, 1, 2, 2])})  # fmt: skip
    with pytest.raises(Exception, match="cubic interpolation of uint8"):
        imported(proto)


@pytest.mark.parametrize(("operator", "opset"), [("Resize", 19), ("Resize", 10), ("Upsample", 9)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_what_keeps_its_size_keeps_infinities(operator, opset, mode):
    x = np.float32([[[[1, np.inf, 3], [np.nan, 2, -np.inf]]]])
    inputs = ["x", "", "scales"] if opset > 10 else ["x", "scales"]
    nodes = [node(operator, inputs, ["y"], mode=mode)]
    proto = model(nodes, [value("x", x.shape)], [value("y", None)], {"scales": np.ones(4, np.float32)}, opset)
    np.testing.assert_array_equal(run_tvm(imported(proto), {"x": x})[0], x)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (5, 1)])
def test_aligned_corners_of_one_pixel(sizes):
    """The wanted size less one divides the scale: nothing is left of it."""
    for mode in ("linear", "nearest"):
        check([1, 3, 4, 5], sizes=[1, 3, *sizes], mode=mode, coordinate_transformation_mode="align_corners")


@pytest.mark.parametrize(
    ("mode", "opset", "shape", "scales"),
    [("nearest", 7, (1, 2, 3, 4), (1, 1, 2, 3)), ("linear", 9, (1, 2, 3, 4), (1, 1, 2, 3)),
     ("linear", 7, (1, 1, 3, 3), (1, 1, 1.5, 2.5)), ("nearest", 9, (1, 1, 3, 3), (1, 1, 1.5, 2.5))],
)  # fmt: skip
def test_upsample_by_an_attribute_or_an_input(mode, opset, shape, scales):
    known, inputs = ({"scales": [float(s) for s in scales]}, ["x"]) if opset == 7 else ({}, ["x", "s"])
    weights = {} if known else {"s": np.float32(scales)}
    nodes = [node("Upsample", inputs, ["y"], mode=mode, **known)]
    check_numbers(
        model(nodes, [value("x", shape)], [value("y", None)], weights, opset),
        {"x": RNG.standard_normal(shape).astype(np.float32)},
    )


@pytest.mark.parametrize("scales", [[0.6, 0.6, 2.0], [0.3, 1.5, 0.75], [1.0, 0.99, 0.5]])
def test_nearest_elements_of_old_lie_above_where_an_axis_shrinks(scales):
    """ONNX does not say; onnxruntime rounds up there, and down elsewhere."""
    weights = {"s": np.float32([1, *scales])}
    proto = model(
        [node("Resize", ["x", "s"], ["y"])], [value("x", [1, 5, 7, 4])], [value("y", None)], weights, opset=10
    )
    check_numbers(proto, {"x": np.random.default_rng(0).standard_normal((1, 5, 7, 4)).astype(np.float32)})


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_numbers_of_float64_are_computed_as_such(mode):
    x = np.random.default_rng(5).standard_normal((1, 2, 3, 5))
    nodes = [node("Resize", ["x", "", "s"], ["y"], mode=mode)]
    inputs, outputs = [value("x", x.shape, TensorProto.DOUBLE)], [value("y", None, TensorProto.DOUBLE)]
    proto = model(nodes, inputs, outputs, {"s": np.float32([1, 1, 2, 2])})
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(run_tvm(imported(proto), {"x": x})[0], expected, rtol=1e-13, atol=1e-13)
