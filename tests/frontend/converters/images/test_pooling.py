"""Pooling against onnxruntime and numpy: auto_pad, ceil_mode, indices of MaxPool, divisors."""

import math

import numpy as np
import pytest
from onnx import TensorProto

import tvm_ext
from tests.frontend.converters.typed import compiled

from ...graphs import check_numbers, model, node, value


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [(2, 3), (3, 4)])
def test_same_padding_of_odd_sizes(op_type, mode, kernel):
    x = np.random.default_rng(1).standard_normal((2, 3, 10, 11)).astype("float32")
    for strides in ([1, 1], [2, 2], [3, 2]):
        shape = (2, 3, *(-(-d // s) for d, s in zip(x.shape[2:], strides, strict=True)))
        nodes = [node(op_type, ["x"], ["y"], kernel_shape=kernel, strides=strides, auto_pad=mode)]
        check_numbers(model(nodes, [value("x", x.shape)], [value("y", shape)]), {"x": x})


@pytest.mark.parametrize("x", [np.zeros((1, 2, 5, 5), "uint8"), np.full((1, 2, 5, 5), -np.inf, "float32")])
def test_the_index_of_the_least_value_there_is(x):
    """Nothing is less than a window of it, not even what a maximum starts from."""
    kind = TensorProto.UINT8 if x.dtype == np.uint8 else TensorProto.FLOAT
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])]
    outputs = [value("y", (1, 2, 4, 4), kind), value("i", (1, 2, 4, 4), TensorProto.INT64)]
    results = tvm_ext.compile(model(nodes, [value("x", x.shape, kind)], outputs), cache=False).run({"x": x})
    first = np.arange(50).reshape(1, 2, 5, 5)[:, :, :4, :4]
    np.testing.assert_array_equal(results["i"], first)
    np.testing.assert_array_equal(results["y"], x[:, :, :4, :4])


@pytest.mark.parametrize("x", [np.zeros((1, 2, 6, 7), "uint8"), np.full((1, 2, 6, 7), -np.inf, "float32")])
def test_padding_is_no_place_of_a_least_value(x):
    """Windows with holes have taps in the padding whose nearest pixel is none of theirs."""
    kind = TensorProto.UINT8 if x.dtype == np.uint8 else TensorProto.FLOAT
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1])]
    outputs = [value("y", x.shape, kind), value("i", x.shape, TensorProto.INT64)]
    results = tvm_ext.compile(model(nodes, [value("x", x.shape, kind)], outputs), cache=False).run({"x": x})
    rows, columns = (np.where(np.arange(d) > 0, np.arange(d) - 1, 1) for d in x.shape[2:])  # -1 is padding, so +1
    first = rows[:, None] * 7 + columns
    np.testing.assert_array_equal(results["i"], np.stack([first, first + 42])[None])


@pytest.mark.parametrize("by_column", [0, 1])
def test_the_first_of_equal_ones_is_that_in_the_order_of_rows(by_column):
    x = np.random.default_rng(2).integers(0, 3, (2, 2, 6, 5)).astype("float32")
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[3, 2], pads=[1, 0, 0, 1], storage_order=by_column)]
    outputs = [value("y", (2, 2, 5, 5)), value("i", (2, 2, 5, 5), TensorProto.INT64)]
    check_numbers(model(nodes, [value("x", x.shape)], outputs), {"x": x})


#: (sizes, kernel, strides, pads, dilations); with ceil_mode the last window of the first three begins in the padding.
WINDOWS = [
    ((3,), [2], [2], [1, 1], [1]), ((4,), [1], [2], [0, 0], [1]), ((2, 2), [2, 2], [2, 2], [1, 1, 1, 1], [1, 1]),
    ((7,), [2], [2], [0, 0], [1]), ((5, 6), [3, 2], [2, 3], [1, 0, 1, 1], [1, 1]),
    ((8, 7), [2, 3], [3, 2], [0, 1, 1, 1], [2, 1]), ((4, 4, 5), [2, 2, 2], [3, 2, 2], [0, 0, 0, 1, 1, 1], [1, 1, 1]),
]  # fmt: skip
#: With `ceil_mode`; and without it, where that makes another number of windows, and where it makes the same.
ALL = [*((window, 1) for window in WINDOWS), (WINDOWS[1], 0), (WINDOWS[3], 0)]
#: Those of other types: one that begins in the padding, and one with holes.
OF_ALL_TYPES = [(WINDOWS[0], 1), (WINDOWS[5], 1)]


def windows(x, kernel, strides, pads, dilations, ceil):
    """For each window its index, its values with their places, and its elements within the padding."""
    rank, sizes, counts = len(kernel), x.shape[2:], []
    for d in range(rank):
        room = sizes[d] + pads[d] + pads[rank + d] - (dilations[d] * (kernel[d] - 1) + 1)
        count = math.ceil(room / strides[d]) + 1 if ceil else room // strides[d] + 1
        counts.append(count - (ceil and (count - 1) * strides[d] >= sizes[d] + pads[d]))
    for n, c, *at in np.ndindex(*x.shape[:2], *counts):
        places = [
            [at[d] * strides[d] - pads[d] + t[d] * dilations[d] for d in range(rank)] for t in np.ndindex(*kernel)
        ]
        inside = [p for p in places if all(0 <= i < size for i, size in zip(p, sizes, strict=True))]
        padded = sum(all(p[d] < sizes[d] + pads[rank + d] for d in range(rank)) for p in places)
        yield (
            (n, c, *at),
            [(float(x[(n, c, *p)]), int(np.ravel_multi_index((n, c, *p), x.shape))) for p in inside],
            padded,
        )


def pooled(reduce, *window):
    values = {index: reduce(inside, padded) for index, inside, padded in windows(*window)}
    out = np.zeros([max(i) + 1 for i in zip(*values, strict=True)])
    for index, number in values.items():
        out[index] = number
    return out


def attributes(window, ceil, dilated=True):
    _, kernel, strides, pads, dilations = window
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil}
    return attrs | ({"dilations": dilations} if dilated else {})


@pytest.mark.parametrize(
    ("window", "ceil", "dtype", "opset"),
    [*((*w, "float32", 12) for w in ALL),
     *((*OF_ALL_TYPES[0], *of) for of in (("float32", 22), ("float64", 12), ("float16", 12)))],
    ids=str,
)  # fmt: skip
def test_maxima_and_their_indices(window, ceil, dtype, opset):
    x = np.random.default_rng(3).standard_normal((2, 3, *window[0])).astype(dtype)
    largest = pooled(lambda inside, _: max(v for v, _ in inside), x, *window[1:], ceil)
    first = pooled(lambda inside, _: max(inside, key=lambda pair: (pair[0], -pair[1]))[1], x, *window[1:], ceil)
    nodes = [node("MaxPool", ["x"], outputs, **attributes(window, ceil)) for outputs in (["y"], ["z", "i"])]
    results = compiled(nodes, {"x": x}, {"y": dtype, "z": dtype, "i": "int64"}, opset)
    for name, wanted in (("y", largest), ("z", largest), ("i", first)):
        np.testing.assert_array_equal(results[name], wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("window", [([9], [3], [2], [1, 1], [1]), ([9, 8], [3, 2], [2, 2], [1, 0, 1, 0], [1, 1]),
                                    ([9, 9], [2, 3], [1, 2], [1, 2, 1, 2], [2, 2]),
                                    ([5, 6, 7], [2, 2, 2], [2, 1, 2], [0] * 6, [1, 1, 1])], ids=str)  # fmt: skip
def test_a_window_that_holds_nan_is_nan_at_its_first(window, dtype):
    """Wherever in the window, of either sign: numbers before it are not lost. onnxruntime has an answer a kernel."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((1, 3, *window[0]))
    x = np.where(rng.random(x.shape) < 0.1, rng.choice([np.nan, -np.nan, np.inf, -np.inf], x.shape), x).astype(dtype)
    largest = pooled(lambda inside, _: np.max([v for v, _ in inside]), x, *window[1:], 0)
    order = np.where(np.isnan(x), np.inf, np.clip(x, -1e4, 1e4)).astype("float64")  # NaN is larger than infinity
    first = pooled(lambda inside, _: max(inside, key=lambda pair: (pair[0], -pair[1]))[1], order, *window[1:], 0)
    assert np.isnan(largest).any() and not np.isnan(largest).all()
    nodes = [node("MaxPool", ["x"], outputs, **attributes(window, 0)) for outputs in (["y"], ["z", "i"])]
    results = compiled(nodes, {"x": x}, {"y": dtype, "z": dtype, "i": "int64"}, 12)
    for name, wanted in (("y", largest), ("z", largest), ("i", first)):
        np.testing.assert_array_equal(results[name], wanted)


def test_indices_are_those_of_what_is_not_rounded():
    """A product in bfloat16 reads the maxima, so that the pool reads rounded numbers; indices are of the others."""
    x = np.random.default_rng(5).standard_normal((1, 4, 8, 8)).astype(np.float32)
    x[0, 0, 0, 0], x[0, 1, :2, :2] = np.nan, -np.inf
    weight = np.random.default_rng(6).standard_normal((4, 4, 1, 1)).astype(np.float32)
    nodes = [node("MaxPool", ["x"], ["m", "i"], kernel_shape=[2, 2], strides=[2, 2]), node("Conv", ["m", "w"], ["y"])]
    outputs = [value("y", (1, 4, 4, 4)), value("i", (1, 4, 4, 4), TensorProto.INT64)]
    proto = model(nodes, [value("x", x.shape)], outputs, {"w": weight})
    program = tvm_ext.compile(proto, precision="bf16", cache=False, threads=1)
    first = pooled(lambda inside, _: max(inside, key=lambda pair: (pair[0], -pair[1]))[1],
                   np.where(np.isnan(x), np.inf, x), [2, 2], [2, 2], [0, 0, 0, 0], [1, 1], 0)  # fmt: skip
    np.testing.assert_array_equal(program.run({"x": x})["i"], first)


@pytest.mark.parametrize(
    ("window", "ceil", "dtype", "rtol"),
    [*((*w, "float32", 1e-6) for w in ALL),
     *((*w, *of) for w in OF_ALL_TYPES for of in (("float64", 1e-14), ("float16", 1e-3)))],
    ids=str,
)  # fmt: skip
def test_averages(window, ceil, dtype, rtol):
    """Of what is inside, and with the padding."""
    x = np.random.default_rng(4).uniform(1, 2, (2, 3, *window[0])).astype(dtype)
    sums = pooled(lambda inside, _: sum(v for v, _ in inside), x, *window[1:], ceil)
    counts = [pooled(count, x, *window[1:], ceil) for count in (lambda i, _: len(i), lambda _, padded: padded)]
    nodes = [node("AveragePool", ["x"], ["yz"[p]], count_include_pad=p, **attributes(window, ceil)) for p in (0, 1)]
    outputs = compiled(nodes, {"x": x}, {"y": dtype, "z": dtype}, 19)
    for name, count in zip("yz", counts, strict=True):
        np.testing.assert_allclose(outputs[name], sums / count, rtol=rtol)


@pytest.mark.parametrize(
    ("window", "ceil", "norms", "dtype", "rtol"),
    [*((*w, (1, 2, 3) if w in OF_ALL_TYPES else (2,), "float32", 3e-6) for w in ALL),
     *((*OF_ALL_TYPES[1], (1, 2, 3), *of) for of in (("float64", 1e-13), ("float16", 1e-3)))],
    ids=str,
)  # fmt: skip
def test_norms(window, ceil, norms, dtype, rtol):
    x = np.random.default_rng(5).standard_normal((2, 3, *window[0])).astype(dtype)
    nodes = [node("LpPool", ["x"], [f"y{p}"], p=p, **attributes(window, ceil)) for p in norms]
    outputs = compiled(nodes, {"x": x}, {f"y{p}": dtype for p in norms}, 18)
    for p in norms:
        wanted = pooled(lambda inside, _, p=p: sum(abs(v) ** p for v, _ in inside) ** (1 / p), x, *window[1:], ceil)
        np.testing.assert_allclose(outputs[f"y{p}"], wanted, rtol=rtol)
