"""Windows and resized images as programs of any size, at every size within bounds, against onnxruntime."""

import itertools

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import text_model
from tests.oracles.reference import assert_agrees, session_of
from tvm_ext.core.errors import ModelError, UnsupportedError

#: Largest size of the symbolic dimension: sizes of each remainder of strides up to 4, several times.
_HIGH = 19
#: Attributes of a window.
WINDOWS = [
    "kernel_shape = [3, 3], strides = [3, 3], pads = [1, 1, 1, 1], ceil_mode = 1",
    "kernel_shape = [3, 2], strides = [3, 2], pads = [1, 0, 2, 1], ceil_mode = 1",
    "kernel_shape = [2, 3], strides = [4, 2], pads = [0, 1, 1, 1], ceil_mode = 1",
    "kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 0, 0], ceil_mode = 1",
    'kernel_shape = [2, 2], strides = [3, 2], auto_pad = "SAME_UPPER"',
    'kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER"',
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
]
#: Of these TVM's kernels are not written alike at all sizes.
REFUSED = {
    ("MaxPool", WINDOWS[4]), ("MaxPool", WINDOWS[5]), ("AveragePool", WINDOWS[3]), ("AveragePool", WINDOWS[4]),
    ("AveragePool", WINDOWS[5]),
}  # fmt: skip


def agrees_at_all_sizes(text: str, high: int = _HIGH) -> list[int]:
    """The sizes of H that a program takes; at each it is compared.

    Raises:
        ModelError, UnsupportedError: it is refused.
    """
    model = text_model(text, opset=22)
    compiled = tvm_ext.compile(model, dims={"H": (1, high)}, threads=1, cache=False, records=None)
    session = session_of(model, optimized=True)
    (symbol,) = compiled.symbols
    sizes = [size for size in range(symbol.low, symbol.high + 1) if not symbol.why_not(size)]
    for size in sizes:
        x = np.random.default_rng(size).standard_normal((1, 2, size, 6)).astype("float32")
        assert_agrees(compiled, session, {"x": x}, where=size)
    return sizes


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_are_right_at_all_sizes(operator: str, window: str) -> None:
    text = f"pool (float[1, 2, H, 6] x) => (float[1, 2, A, B] y) {{ y = {operator} <{window}> (x) }}"
    if (operator, window) in REFUSED:
        with pytest.raises((ModelError, UnsupportedError), match="cannot be compiled for every size of H"):
            agrees_at_all_sizes(text)
    else:
        sizes = agrees_at_all_sizes(text)
        assert sizes[0] <= 3 and sizes[-1] >= _HIGH - 1


#: Of 7, 6, 4 and 3 rows, which are tried, the results are 3, 3, 2 and 2 rows; of 5, or of 2, they are not the same.
SAME_COUNTS = {
    "windows": """
        pools (float[1, 2, H, 6] x) => (float[1, 2, A, 6] y, float[1, 2, B, 6] z, float[1, 2, C, 6] w) {
          y = MaxPool <kernel_shape = [3, 1], strides = [3, 1], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
          z = MaxPool <kernel_shape = [3, 1], strides = [3, 1], pads = [2, 0, 2, 0]> (x)
          w = MaxPool <kernel_shape = [2, 1], strides = [3, 1], pads = [1, 0, 1, 0]> (x)
        }
    """,
    "a window and a slice": """
        rows (float[1, 2, H, 6] x) => (float[1, 2, A, 6] y, float[1, 2, B, 6] z) {
          y = MaxPool <kernel_shape = [3, 1], strides = [3, 1], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
          pads = Constant <value_ints = [0, 0, 1, 0, 0, 0, 1, 0]> ()
          p = Pad (x, pads)
          first = Constant <value_ints = [0]> ()
          last = Constant <value_ints = [1000]> ()
          axis = Constant <value_ints = [2]> ()
          step = Constant <value_ints = [3]> ()
          z = Slice (p, first, last, axis, step)
        }
    """,
}


@pytest.mark.parametrize("kind", SAME_COUNTS)
def test_values_of_the_same_counts_at_the_sizes_tried_are_told_apart(kind: str) -> None:
    assert agrees_at_all_sizes(SAME_COUNTS[kind], 7)


def resized(attributes: str, operand: str) -> str:
    name = "scales" if "float" in operand else "sizes"
    return f"""
        resized (float[1, 2, H, 6] x) => (float[1, 2, A, B] y) {{
          {name} = Constant <{operand}> ()
          y = Resize <{attributes}> (x, , {"scales" if name == "scales" else ", sizes"})
        }}
    """


@pytest.mark.parametrize("attributes", [
    'mode = "linear"', 'mode = "linear", coordinate_transformation_mode = "align_corners"',
    'mode = "linear", coordinate_transformation_mode = "asymmetric"',
    'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"', 'mode = "nearest"',
])  # fmt: skip
def test_whole_scales_are_right_at_all_sizes(attributes: str) -> None:
    assert len(agrees_at_all_sizes(resized(attributes, "value_floats = [1.0, 1.0, 2.0, 2.0]"))) >= _HIGH - 2


_ROUNDED = [
    *itertools.product(["asymmetric", "align_corners"], ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
    *itertools.product(["half_pixel", "pytorch_half_pixel"], ["round_prefer_floor", "round_prefer_ceil"]),
]


@pytest.mark.parametrize(
    ("coordinates", "rounding", "wanted"), [(*kind, (12, 4, 1)[number % 3]) for number, kind in enumerate(_ROUNDED)]
)
def test_nearest_elements_of_a_constant_size_are_right(coordinates: str, rounding: str, wanted: int) -> None:
    attributes = f'mode = "nearest", coordinate_transformation_mode = "{coordinates}", nearest_mode = "{rounding}"'
    assert len(agrees_at_all_sizes(resized(attributes, f"value_ints = [1, 2, {wanted}, 6]"), 13)) >= 12


def test_a_size_that_all_sizes_tried_divide_is_refused() -> None:
    """The kernel repeats each element as often as the others: no factor is a function of H that is known."""
    attributes = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    with pytest.raises((ModelError, UnsupportedError), match="cannot be compiled for every size of H"):
        agrees_at_all_sizes(resized(attributes, "value_ints = [1, 2, 5040, 6]"), 7)


@pytest.mark.parametrize(("coordinates", "rounding"), [
    ("asymmetric", "floor"), ("asymmetric", "ceil"), ("align_corners", "floor"), ("half_pixel", "round_prefer_floor"),
])  # fmt: skip
def test_the_nearest_row_is_right_at_all_sizes(coordinates: str, rounding: str) -> None:
    attributes = f'mode = "nearest", coordinate_transformation_mode = "{coordinates}", nearest_mode = "{rounding}"'
    assert list(agrees_at_all_sizes(resized(attributes, "value_ints = [1, 2, 1, 6]"), 7)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("attributes", "operand"), [
    ('mode = "cubic"', "value_ints = [1, 2, 8, 6]"), ('mode = "linear"', "value_ints = [1, 2, 30, 6]"),
    ('mode = "linear", antialias = 1', "value_ints = [1, 2, 5, 6]"),
    ('mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"', "value_ints = [1, 2, 8, 3]"),
    ('mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel"', "value_ints = [1, 2, 1, 6]"),
    ('mode = "cubic", exclude_outside = 1', "value_floats = [1.0, 1.0, 1.5, 2.0]"),
    ('mode = "linear", coordinate_transformation_mode = "half_pixel_symmetric"', "value_floats = [1.0, 1.0, 0.5, 2.0]"),
])  # fmt: skip
def test_tables_that_sizes_decide_are_right_at_all_sizes(attributes: str, operand: str) -> None:
    assert len(agrees_at_all_sizes(resized(attributes, operand), 13)) >= 12


def _cells(feature: str, scale: int) -> str:
    """Centers of the cells of a feature map, a column each, and their scale, as exporters of detectors write it."""
    f = feature
    return f"""
        {f}_s = Shape({f})
        {f}_h = Gather <axis = 0> ({f}_s, two)
        {f}_w = Gather <axis = 0> ({f}_s, three)
        {f}_hf = Cast <to = 1> ({f}_h)
        {f}_wf = Cast <to = 1> ({f}_w)
        {f}_ys0 = Range (zero, {f}_hf, step)
        {f}_xs0 = Range (zero, {f}_wf, step)
        {f}_ys1 = Add ({f}_ys0, half)
        {f}_xs1 = Add ({f}_xs0, half)
        {f}_ys = Reshape ({f}_ys1, column)
        {f}_xs = Reshape ({f}_xs1, row)
        {f}_h1 = Unsqueeze ({f}_h, first)
        {f}_w1 = Unsqueeze ({f}_w, first)
        {f}_hw = Concat <axis = 0> ({f}_h1, {f}_w1)
        {f}_y2 = Expand ({f}_ys, {f}_hw)
        {f}_x2 = Expand ({f}_xs, {f}_hw)
        {f}_y3 = Reshape ({f}_y2, row)
        {f}_x3 = Reshape ({f}_x2, row)
        {f}_at = Concat <axis = 0> ({f}_x3, {f}_y3)
        {f}_n = Mul ({f}_h1, {f}_w1)
        {f}_strides = Expand (stride{scale}, {f}_n)"""


def test_cells_of_a_detector_at_two_scales() -> None:
    flat = "".join(f"""
        {f}_f0 = Reshape ({f}, flat)
        {f}_f = Transpose <perm = [0, 2, 1]> ({f}_f0)""" for f in "ab")  # fmt: skip
    weights = {
        "two": 2, "three": 3, "zero": np.float32(0), "step": np.float32(1), "half": np.float32(0.5),
        "column": np.array([-1, 1]), "row": np.array([1, -1]), "first": np.array([0]), "flat": np.array([0, 2, -1]),
        "stride2": np.array([2], np.float32), "stride4": np.array([4], np.float32),
    }  # fmt: skip
    model = text_model(
        f"""g (float[N, 2, H, W] x) => (float[n, c, k] y) {{
        a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a){_cells("a", 2)}{_cells("b", 4)}{flat}
        all0 = Concat <axis = 1> (a_f, b_f)
        all = Transpose <perm = [0, 2, 1]> (all0)
        centers = Concat <axis = 1> (a_at, b_at)
        strides = Concat <axis = 0> (a_strides, b_strides)
        moved = Add (all, centers)
        y = Mul (moved, strides)
        }}""",
        {name: np.asarray(array) for name, array in weights.items()},
    )
    dims = {"N": (1, 3), "H": (8, 40), "W": (8, 40)}
    compiled = tvm_ext.compile(model, dims=dims, threads=1, cache=False, records=None)
    session = session_of(model, optimized=True)
    steps = {symbol.name: symbol.multiple for symbol in compiled.symbols}
    for n, h, w in ((1, 8, 8), (2, 36, 20), (3, 40, 40), (1, 8, 28), (1, 8, 8)):
        size = (n, 2, h // steps["H"] * steps["H"], w // steps["W"] * steps["W"])
        x = np.random.default_rng(h).standard_normal(size).astype("float32")
        assert_agrees(compiled, session, {"x": x}, where=size)
