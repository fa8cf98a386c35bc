"""GridSample, AffineGrid and RoiAlign in every float, against onnxruntime in float32 and against numpy."""

import itertools
import math

import ml_dtypes  # noqa: F401  numpy learns bfloat16
import numpy as np
import pytest
from onnx import numpy_helper

import tvm_ext
from tvm_ext.core.errors import UnsupportedError

from ...graphs import node, run_onnxruntime
from ..typed import compiled, proto_of

#: dtype -> a few units in the last place, of values below 4.
UNITS = {"float64": 1e-5, "float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}
RNG = np.random.default_rng(11)


PADDINGS = ("zeros", "border", "reflection")
#: dtype, mode, padding, whether corners are aligned; bicubic ones take LLVM seconds.
GRIDS = [
    *itertools.product(["float32"], ["bilinear", "nearest"], PADDINGS, (0, 1)),
    ("float64", "bilinear", "border", 0), ("float64", "nearest", "reflection", 1),
    ("float16", "bilinear", "reflection", 1), ("float16", "nearest", "zeros", 0),
    ("bfloat16", "bilinear", "zeros", 1), ("bfloat16", "nearest", "border", 0),
]  # fmt: skip
BICUBIC = [
    ("float32", "bicubic", "reflection", 0), ("float64", "bicubic", "border", 1), ("bfloat16", "bicubic", "zeros", 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "mode", "padding", "corners"),
    [*GRIDS, *(pytest.param(*case, marks=pytest.mark.long) for case in BICUBIC)],
)
def test_grids_of_every_float(dtype, mode, padding, corners):
    x, grid = RNG.standard_normal((2, 3, 5, 4)).astype(dtype), RNG.uniform(-1.2, 1.2, (2, 3, 6, 2)).astype(dtype)
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=corners)]
    plain = {"x": x.astype("float32"), "g": grid.astype("float32")}
    (wanted,) = run_onnxruntime(proto_of(nodes, plain, {"y": "float32"}, 16), plain)
    if dtype == "bfloat16":  # which came later, with other names of the modes
        named = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        nodes = [node("GridSample", ["x", "g"], ["y"], mode=named, padding_mode=padding, align_corners=corners)]
    got = compiled(nodes, {"x": x, "g": grid}, {"y": dtype}, 22 if dtype == "bfloat16" else 16)["y"]
    np.testing.assert_allclose(got.astype("float64"), wanted, rtol=UNITS[dtype], atol=UNITS[dtype])


@pytest.mark.parametrize(
    ("mode", "padding", "corners"), [("linear", "reflection", 0), ("linear", "zeros", 1), ("nearest", "reflection", 1)]
)
def test_grids_of_volumes(mode, padding, corners):
    """Places up to three sizes outside are thrown back more than once; an axis of one element has one place."""
    for shape in ((1, 3, 4, 5, 6), (1, 2, 1, 3, 1)):
        x, grid = RNG.standard_normal(shape).astype("f"), RNG.uniform(-3, 3, (1, 2, 3, 4, 3)).astype("f")
        nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=corners)]
        feeds = {"x": x, "g": grid}
        (wanted,) = run_onnxruntime(proto_of(nodes, feeds, {"y": "float32"}, 20), feeds)
        np.testing.assert_allclose(compiled(nodes, feeds, {"y": "float32"}, 20)["y"], wanted, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize(("dtype", "places"), [("float32", "float16"), ("float16", "float32"), ("float32", "float64")])
def test_grids_of_another_float_than_what_is_read(dtype, places):
    x, grid = RNG.standard_normal((1, 2, 5, 4)).astype(dtype), RNG.uniform(-1, 1, (1, 3, 2, 2)).astype(places)
    nodes = [node("GridSample", ["x", "g"], ["y"])]
    plain = {"x": x.astype("float32"), "g": grid.astype("float32")}
    (wanted,) = run_onnxruntime(proto_of(nodes, plain, {"y": "float32"}, 16), plain)
    got = compiled(nodes, {"x": x, "g": grid}, {"y": dtype}, 16)["y"]
    np.testing.assert_allclose(got, wanted, rtol=UNITS[dtype], atol=UNITS[dtype])


def aligned(x, rois, batch, bins, ratio, scale, half):
    """RoiAlign in float64."""
    height, width = x.shape[2:]
    out = np.zeros((len(rois), x.shape[1], *bins))

    def value(image, y, x):
        if not (-1 <= y <= height and -1 <= x <= width):
            return np.zeros(image.shape[0])
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
        i, j = int(y), int(x)
        below, right, ty, tx = min(i + 1, height - 1), min(j + 1, width - 1), y - i, x - j
        above = image[:, i, j] * (1 - tx) + image[:, i, right] * tx
        return above * (1 - ty) + (image[:, below, j] * (1 - tx) + image[:, below, right] * tx) * ty

    for r, p, q in np.ndindex(len(rois), *bins):
        left, top, right, bottom = rois[r].astype("float64") * scale - 0.5 * half
        h, w = (bottom - top, right - left) if half else (max(bottom - top, 1), max(right - left, 1))
        bh, bw = h / bins[0], w / bins[1]
        rows, columns = (ratio or max(math.ceil(b), 0) for b in (bh, bw))
        image = x[batch[r]].astype("float64")
        places = [(top + p * bh + (i + 0.5) * bh / rows, left + q * bw + (j + 0.5) * bw / columns)
                  for i in range(rows) for j in range(columns)]  # fmt: skip
        samples = [value(image, *place) for place in places]
        out[r, :, p, q] = sum(samples) / len(samples) if samples else 0
    return out


REGIONS = [(10, ""), (16, ""), (16, "half_pixel"), (16, "output_half_pixel")]


@pytest.mark.parametrize(
    ("dtype", "opset", "mode", "ratio", "scale"),
    [*(("float32", *REGIONS[i], ratio, (1.0, 0.25)[(i + ratio // 2) % 2]) for i in range(4) for ratio in (0, 2)),
     *((dtype, *REGIONS[i], ratio, 0.25) for dtype in UNITS if dtype != "float32" for i, ratio in ((1, 0), (3, 2))),
     ("float64", *REGIONS[0], 0, 0.25), ("float16", *REGIONS[0], 2, 1.0)],
)  # fmt: skip
def test_regions_of_every_float(dtype, opset, mode, ratio, scale):
    """Among them one of no size, one turned around, and one that reaches beyond the image."""
    x = RNG.standard_normal((2, 3, 6, 5)).astype(dtype)
    rois = [[0, 0, 5, 5], [1.25, 2.5, 6.5, 7.75], [3, 3, 3, 3], [5, 5, 4, 4], [-3, -2, 14, 20]]
    rois, batch = np.array(rois, "float64").astype(dtype), np.array([0, 1, 1, 0, 1])
    attrs = {"coordinate_transformation_mode": mode} if mode else {}
    nodes = [node("RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=ratio, output_height=3, output_width=2,
                  spatial_scale=scale, **attrs)]  # fmt: skip
    half = opset == 16 and mode != "output_half_pixel"
    wanted = aligned(x, rois, batch, (3, 2), ratio, scale, half)
    newest = 22 if opset == 16 and dtype == "bfloat16" else opset
    got = compiled(nodes, {"x": x, "r": rois, "b": batch}, {"y": dtype}, newest)["y"].astype("float64")
    np.testing.assert_allclose(got, wanted, rtol=UNITS[dtype], atol=UNITS[dtype])


@pytest.mark.parametrize(("mode", "ratio"), [("avg", 0), ("max", 0), ("max", 2)])
def test_regions_against_onnxruntime(mode, ratio):
    feeds = {"x": RNG.standard_normal((2, 3, 6, 5)).astype("float32"), "b": np.array([0, 1, 1]),
             "r": np.array([[0, 0, 5, 5], [-9, 2.5, 6.5, 7.75], [3, 3, 3, 3]], "float32")}  # fmt: skip
    nodes = [node("RoiAlign", ["x", "r", "b"], ["y"], output_height=3, output_width=2, spatial_scale=0.5, mode=mode,
                  sampling_ratio=ratio)]  # fmt: skip
    for opset in (10, 16):
        (wanted,) = run_onnxruntime(proto_of(nodes, feeds, {"y": "float32"}, opset), feeds)
        got = compiled(nodes, feeds, {"y": "float32"}, opset)["y"]
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("size", "corners", "dtype"),
    [((2, 1, 3, 4), 0, "float32"), ((2, 1, 3, 4), 1, "float64"), ((2, 1, 1, 3), 0, "float32"),
     ((2, 1, 2, 1, 3), 0, "float64"), ((2, 1, 2, 4, 3), 1, "float32")],
)  # fmt: skip
def test_grids_of_finite_and_infinite_maps(size, corners, dtype):
    """Zero times infinity is NaN, even where it is the place of a single pixel."""
    rank = len(size) - 2
    theta = RNG.standard_normal((2, rank, rank + 1)).astype(dtype)
    theta[1, 0] = [np.inf, *theta[1, 0, 1:]]
    theta[1, 1, 1] = -np.inf
    nodes = [node("AffineGrid", ["t", "n"], ["g"], align_corners=corners)]
    proto = proto_of(nodes, {"t": theta}, {"g": dtype}, 20)
    proto.graph.initializer.append(numpy_helper.from_array(np.int64(size), "n"))
    (wanted,) = run_onnxruntime(proto, {"t": theta})
    result = tvm_ext.compile(proto, cache=False, threads=1).run({"t": theta})["g"]
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_regions_of_images_that_there_are_not() -> None:
    """The nearest image is read; halves of places are rounded away from 0."""
    x = RNG.standard_normal((2, 3, 8, 9)).astype("float32")
    rois = np.float32([[0, 0, 0, 5, 5], [1, -3, -3, 2, 2], [1, 5, 5, 1, 1], [0, 6, 6, 40, 40], [0, 1, 1, 3, 3]])
    nodes = [node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 3], spatial_scale=0.5)]
    (wanted,) = run_onnxruntime(proto_of(nodes, {"x": x, "r": rois}, {"y": "float32"}, 17), {"x": x, "r": rois})
    rois[:, 0] = [-3, 7, 1e9, -1e9, np.nan]
    for dtype in ("float32", "float16"):
        feeds = {"x": x.astype(dtype), "r": rois.astype(dtype)}
        np.testing.assert_array_equal(compiled(nodes, feeds, {"y": dtype}, 17)["y"], wanted.astype(dtype))


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("operator", ["RoiAlign", "MaxRoiPool"])
def test_a_scale_that_is_no_number_is_refused(operator: str, scale: float) -> None:
    """With as many samples as a region asks for, one of NaN read memory that is not there."""
    feeds = {"x": np.ones((1, 2, 5, 6), "float32"), "r": np.ones((1, 4 + (operator == "MaxRoiPool")), "float32")}
    more = {"pooled_shape": [2, 3]} if operator == "MaxRoiPool" else {}
    if operator == "RoiAlign":
        feeds["b"] = np.zeros(1, "int64")
    nodes = [node(operator, list(feeds), ["y"], "pool", spatial_scale=scale, **more)]
    with pytest.raises(UnsupportedError, match="'pool'"):
        tvm_ext.compile(proto_of(nodes, feeds, {"y": "float32"}, 16), cache=False)
