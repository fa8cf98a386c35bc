"""What graphs with neighbours, more sizes of 0 and ends of ranges got wrong: each a test of its kind."""

import itertools
import operator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from tvm_ext.core.errors import UnsupportedError

from ..graphs import check_numbers, imported, model, node, value
from .test_drawn import one_node
from .typed import compiled

RNG = np.random.default_rng(9)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
def test_a_known_length_of_one_sequence(op_type: str, length: int) -> None:
    """A select whose condition all lanes share reads no further than it says."""
    steps, inputs, hidden, gates = 5, 3, 3, {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
    weights = {
        "w": RNG.standard_normal((1, gates * hidden, inputs)),
        "r": RNG.standard_normal((1, gates * hidden, hidden)),
    }
    known = {name: w.astype(np.float32) for name, w in weights.items()} | {"n": np.int32([length])}
    outputs = ["y", "h", "c"][: 3 if op_type == "LSTM" else 2]
    proto = model(
        [node(op_type, ["x", "w", "r", "", "n"], outputs, hidden_size=hidden)],
        [value("x", [steps, 1, inputs])], [value(name, None) for name in outputs], known,
    )  # fmt: skip
    check_numbers(proto, {"x": RNG.standard_normal((steps, 1, inputs)).astype(np.float32)})


def test_the_clip_of_an_lstm_is_of_its_gates() -> None:
    weights = {"w": 4 * RNG.standard_normal((1, 16, 3)), "r": 4 * RNG.standard_normal((1, 16, 4))}
    proto = model(
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4, clip=0.5)],
        [value("x", [5, 2, 3])], [value("y", None)], {n: w.astype(np.float32) for n, w in weights.items()},
    )  # fmt: skip
    check_numbers(proto, {"x": RNG.standard_normal((5, 2, 3)).astype(np.float32)})


ARITHMETIC = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}
UNARY = {"Neg": operator.neg, "Abs": np.abs}


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_wrap(dtype: str) -> None:
    """Constants are not joined, and LLVM is not told that no result leaves the type."""
    limits, x = np.iinfo(dtype), np.array([0, 1, 5, 2**31 - 1], dtype)
    constants = [np.array(v, dtype) for v in (limits.max, 3, limits.max - 7, limits.max // 2)]
    nodes, wanted, at = [], x, "x"
    kinds = ["Add", "Add", "Sub", "Mul"]
    for number, (kind, constant) in enumerate(zip(kinds, constants, strict=True)):
        nodes.append(node(kind, [at, f"c{number}"], [at := f"y{number}"]))
        wanted = ARITHMETIC[kind](wanted, constant)
    known = {f"c{number}": constant for number, constant in enumerate(constants)}
    np.testing.assert_array_equal(compiled(nodes, {"x": x}, {at: dtype}, 17, known)[at], wanted)
    first = compiled(nodes[:1], {"x": x}, {"y0": dtype}, 17, {"c0": constants[0]})["y0"]
    np.testing.assert_array_equal(first, x + constants[0])


def _truncated(a: np.ndarray) -> np.ndarray:
    return np.array([int(abs(v) // 3) * (1 if v >= 0 else -1) for v in a.astype(object)], a.dtype)


#: What reads a result that left the type -> (nodes behind it, of it and of x; what numpy says).
READERS: dict[str, Any] = {
    "greater": ([("Greater", ["a", "x"])], lambda a, x: a > x),
    "less than 0": ([("Less", ["a", "zero"])], lambda a, x: a < 0),
    "absolute": ([("Abs", ["a"])], lambda a, x: np.abs(a)),
    "widened": ([("Cast", ["a"])], lambda a, x: a.astype("float64")),
    "quotient": ([("Div", ["a", "three"])], lambda a, x: _truncated(a)),
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *itertools.product(["Add", "Sub", "Mul"], ["int32", "uint32", "int64", "uint64"]),
        *itertools.product(UNARY, ["int32", "int64"]),
    ],
)
def test_what_is_read_of_integers_that_wrapped(kind: str, dtype: str) -> None:
    """In one kernel with their readers, which LLVM would simplify if it took them for whole numbers."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(7)
    x = np.resize(np.array([limits.max, limits.min, 3, 1 << (limits.bits // 2 - 1)], dtype), 37)
    y = rng.permutation(np.resize(np.array([3, 1, limits.max, 1 << (limits.bits // 2)], dtype), 37))
    with np.errstate(over="ignore"):
        a = UNARY[kind](x) if kind in UNARY else ARITHMETIC[kind](x, y)
    operands = ["x"] if kind in UNARY else ["x", "y"]
    nodes, wanted, kinds = [node(kind, operands, ["a"])], {}, {}
    for number, (readers, exact) in enumerate(READERS.values()):
        (operator_, inputs), result = readers[0], exact(a, x)
        nodes.append(node(operator_, inputs, [f"r{number}"], **({"to": 11} if operator_ == "Cast" else {})))
        wanted[f"r{number}"], kinds[f"r{number}"] = result, result.dtype.name
    feeds = {"x": x} if kind in UNARY else {"x": x, "y": y}
    known = {"zero": np.zeros((), dtype), "three": np.full((), 3, dtype)}
    outputs = compiled(nodes, feeds, {**kinds, "a": dtype}, 17, known)
    np.testing.assert_array_equal(outputs["a"], a)
    for name, result in wanted.items():
        np.testing.assert_array_equal(outputs[name], result, name)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_floats_of_8_bits(dtype: str) -> None:
    x = RNG.standard_normal((7, 33)).astype(ml_dtypes.finfo(dtype).dtype)
    x[0, :2] = np.nan, np.inf
    y = one_node("Transpose", x, dtype, 21)
    np.testing.assert_array_equal(y.view(np.uint8), x.T.view(np.uint8))
    np.testing.assert_array_equal(one_node("IsInf", x, "bool", 20), np.isinf(x.astype(np.float32)))


def test_nothing_has_a_determinant_and_a_transposed_convolution() -> None:
    np.testing.assert_array_equal(one_node("Det", np.zeros((3, 0, 0), np.float32), "float32", 11), np.ones(3))
    weight, bias = np.ones((2, 3, 2), np.float32), np.float32([1, 2, 3])
    y = one_node("ConvTranspose", np.zeros((1, 2, 0), np.float32), "float32", 11, [weight, bias], output_shape=[5])
    np.testing.assert_array_equal(y, np.broadcast_to(bias[None, :, None], (1, 3, 5)))


@pytest.mark.parametrize(("reduction", "wanted"), [("max", [1, 1, 0]), ("min", [0, 1, 0]), ("mul", [0, 1, 0])])
def test_reductions_of_truth_values(reduction: str, wanted: list[int]) -> None:
    x, places, updates = np.array([0, 1, 0], bool), np.array([[0], [1]]), np.array([1, 1], bool)
    y = one_node("ScatterND", x, "bool", 18, [places, updates], reduction=reduction)
    z = one_node("ScatterElements", x, "bool", 18, [places[:, 0], updates], reduction=reduction)
    assert y.astype(int).tolist() == z.astype(int).tolist() == wanted


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_mirrored_grid_of_one_column(mode: str) -> None:
    proto = model(
        [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode="reflection", align_corners=1)],
        [value("x", [1, 2, 5, 1]), value("g", [1, 3, 4, 2])], [value("y", None)], {}, 20,
    )  # fmt: skip
    check_numbers(proto, {
        "x": RNG.standard_normal((1, 2, 5, 1)).astype(np.float32),
        "g": RNG.standard_normal((1, 3, 4, 2)).astype(np.float32),
    })  # fmt: skip


def test_a_norm_of_one_element_times_0() -> None:
    x, one = RNG.standard_normal((2, 8, 1)).astype(np.float32), np.float32([2])
    nodes = [node("LayerNormalization", ["x", "w", "w"], ["n"]), node("Mul", ["n", "z"], ["y"])]
    y = compiled(nodes, {"x": x}, {"y": "float32"}, 17, {"w": one, "z": np.float32(0)})["y"]
    np.testing.assert_array_equal(y, np.zeros_like(x))


FLOAT4 = np.ones((2, 3), ml_dtypes.float4_e2m1fn)


@pytest.mark.parametrize(
    ("checked", "shape", "weights", "opset", "part"),
    [
        (node("MeanVarianceNormalization", ["x"], ["y"]), [3, 4, 5], {}, 13, "3 dimensions"),
        (node("BatchNormalization", ["x", "w", "w", "w", "w"], list("ymvsd")), [1, 2], {"w": [1.0, 2.0]}, 9,
         "training"),
        (node("Resize", ["x", "s", "s"], ["y"]), [], {"s": []}, 12, "neither scales nor sizes"),
        (node("ReverseSequence", ["x", "n"], ["y"]), [5, 4], {"n": np.int64([1, 2, 3])}, 10, "3 lengths of 4"),
        (node("ConvTranspose", ["x", "w"], ["y"], output_shape=[8]), [1, 1, 1], {"w": [[[1.0]]]}, 17, "do not fill"),
        (node("Col2Im", ["x", "i", "k"], ["y"]), [1, 4, 12], {"i": np.int64([4, 9]), "k": np.int64([2, 2])}, 18,
         "not of 24"),
        (node("Pad", ["x", "p"], ["y"], mode="reflect"), [4], {"p": np.int64([0, 4])}, 19, "of 4 elements"),
        (node("Pad", ["x", "p"], ["y"], mode="edge"), [4], {"p": np.int64([-4, 4])}, 19, "of 0 elements"),
        (node("Identity", ["f"], ["y"]), [1], {"f": FLOAT4}, 23, "float4"),
        (node("LayerNormalization", ["x", "w"], ["y", "m"]), [2, 0], {"w": []}, 17, "no elements"),
    ],
)  # fmt: skip
def test_refusals_are_in_words_of_the_node(checked: Any, shape: Any, weights: Any, opset: int, part: str) -> None:
    known = {k: w if isinstance(w, np.ndarray) else np.float32(w) for k, w in weights.items()}
    dtype = helper.np_dtype_to_tensor_dtype(FLOAT4.dtype if "f" in weights else np.dtype("float32"))
    proto = model([checked], [value("x", shape)], [value(n, None, dtype) for n in checked.output], known, opset)
    proto.ir_version = 11
    with pytest.raises(UnsupportedError, match=part) as raised:
        imported(proto)
    assert "cannot be converted" not in str(raised.value)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [[0, 2, -3, 2], [-1, -1, -1, -1], [3, -1, 2, 1], [-2, 1, 1, -1]], ids=str)
def test_elements_are_padded_with_what_negative_pads_leave(mode: str, pads: list[int]) -> None:
    """And the value, which only other modes read, may be computed."""
    inputs = [value("x", [4, 3]), value("v", [])]
    proto = model([node("Pad", ["x", "p", "v"], ["y"], mode=mode)], inputs, [value("y", None)],
                  {"p": np.int64(pads)}, 19)  # fmt: skip
    check_numbers(proto, {"x": RNG.standard_normal((4, 3)).astype(np.float32), "v": np.array(1, np.float32)})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_of_an_old_clip_are_those_of_float32(dtype: str) -> None:
    """Where one is left out; so that an infinity does not pass."""
    x, most = np.array([-np.inf, np.inf, np.nan, -9, 9], dtype), np.finfo(np.float32).max
    nodes = [node("Clip", ["x"], ["y"], max=6.0), node("Clip", ["x"], ["z"], min=-6.0)]
    outputs = compiled(nodes, {"x": x}, {"y": dtype, "z": dtype}, 9)
    np.testing.assert_array_equal(outputs["y"], np.clip(x, -most, 6))
    np.testing.assert_array_equal(outputs["z"], np.clip(x, -6, most))


def test_no_axes_and_outputs_of_training_that_nobody_reads() -> None:
    norm = node("BatchNormalization", ["u", "w", "w", "w", "w"], list("ymvsd"))
    proto = model([node("Unsqueeze", ["x"], ["u"]), norm], [value("x", [1, 2])], [value("y", None)],
                  {"w": np.float32([1, 2])}, 9)  # fmt: skip
    proto.graph.node[0].attribute.append(helper.make_attribute("axes", [], attr_type=7))
    x = RNG.standard_normal((1, 2)).astype(np.float32)
    wide = (x - [1, 2]) / np.sqrt(np.float64([1, 2]) + 1e-5) * [1, 2] + [1, 2]
    np.testing.assert_allclose(tvm_ext.compile(proto, cache=False).run({"x": x})["y"], wide, rtol=1e-5)


def test_where_data_decide_a_size_a_model_cut_in_two_runs(tmp_path: Any) -> None:
    """As the error says: up to the node, and with what the node makes as an input."""
    nodes = [node("ReduceSum", ["x"], ["n"], keepdims=0), node("Range", ["zero", "n", "one"], ["r"], "steps"),
             node("Cast", ["r"], ["f"], to=1), node("ReduceMean", ["x"], ["m"], keepdims=0),
             node("Cast", ["m"], ["g"], to=1), node("Mul", ["f", "g"], ["y"])]  # fmt: skip
    ends = [value("x", [100], 7)], [value("y", ["steps"])]
    proto = model(nodes, *ends, {"zero": np.int64(0), "one": np.int64(1)})
    with pytest.raises(UnsupportedError) as raised:
        imported(proto)
    assert "extract_model" in str(raised.value.fix) and "with 'r' as an input" in str(raised.value.fix)
    onnx.save(proto, tmp_path / "whole.onnx")
    x, feeds = RNG.integers(0, 3, 100), {}
    for name, inputs, outputs in (("first", ["x"], ["n"]), ("second", ["x", "r"], ["y"])):
        onnx.utils.extract_model(tmp_path / "whole.onnx", tmp_path / f"{name}.onnx", inputs, outputs)
        feeds = {"x": x, **({"r": np.arange(feeds["n"])} if feeds else {})}
        shapes = {"r": feeds["r"].shape} if "r" in feeds else None
        feeds = tvm_ext.compile(tmp_path / f"{name}.onnx", shapes=shapes, cache=False).run(feeds)
    np.testing.assert_allclose(feeds["y"], np.arange(x.sum()) * np.float32(x.sum() // 100), rtol=1e-6)
