"""Floats at their edges: NaN, infinities, rounding of sums, in kernels of recipes and in those of TVM's operators."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.onnx_graphs import model, node, value

NAN, INF = np.nan, np.inf
X = [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.0, 3.0, NAN, 1.0, INF, -INF, 2.5, -0.5, 7.0, -1.0, 0.25]
Y = [1.0, INF, INF, NAN, 0.0, 1.5, NAN, -3.0, NAN, 1e30, -INF, -INF, 1e-30, 3e38, 0.5, -1.0, 0.0]
FLOATS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16}


def values(dtype: str) -> list[np.ndarray]:
    with np.errstate(over="ignore"):
        return [np.array(v, "float64").astype(dtype) for v in (X, Y)]


def check(
    chains: Mapping[str, tuple[Sequence[Any], Any]], dtype: str = "float32", out: str = "", **options: Any
) -> None:
    """One model of several chains of nodes on x and y, each with its output and what numpy makes of it."""
    x, y = values(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(out or dtype))
    inputs = [value(name, x.shape, FLOATS[dtype]) for name in "xy"]
    outputs = [value(name, x.shape, kind) for name in chains]
    proto = model([step for nodes, _ in chains.values() for step in nodes], inputs, outputs)
    with np.errstate(all="ignore"):
        wanted = {name: function(x, y) for name, (_, function) in chains.items()}
    assert_outputs(proto, {"x": x, "y": y}, wanted, **options)


def assert_outputs(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], **options: Any
) -> None:
    """Compiled, the model gives exactly these outputs."""
    outputs = tvm_ext.compile(proto, cache=False, **options).run(feeds)
    for name, expected in wanted.items():
        np.testing.assert_array_equal(outputs[name], expected, err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fusion", ["default", "none"])
def test_differences(dtype: str, fusion: str) -> None:
    """x - x is NaN where x is; a sum is rounded before it is taken apart: 1 + 1e30 - 1e30 is 0."""
    chains = {
        "a": ([node("Sub", "x x", "a")], lambda x, y: x - x),
        "b": ([node("Add", "x y", "s"), node("Sub", "s y", "b")], lambda x, y: (x + y) - y),
        "c": ([node("Add", "y x", "t"), node("Sub", "t x", "c")], lambda x, y: (y + x) - x),
        "d": ([node("Abs", "x", "u"), node("Add", "u y", "v"), node("Sub", "u v", "d")],
              lambda x, y: np.abs(x) - (np.abs(x) + y)),
        "e": ([node("Mul", "x y", "p"), node("Sub", "p p", "e")], lambda x, y: x * y - x * y),
    }  # fmt: skip
    check(chains, dtype, fusion=fusion)


def test_the_sign_of_zero_less_zero() -> None:
    proto = model([node("Sub", "w x", "y")], [value("x", (17,))], [value("y", (17,))], {"w": np.float32(0)})
    (x, _) = values("float32")
    y = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    np.testing.assert_array_equal(np.signbit(y[x == 0]), [False, False])


@pytest.mark.parametrize("alpha", [0.0, -0.0])
def test_zero_times_nan_and_infinity(alpha: float) -> None:
    zero = np.float32(alpha)
    nodes = [node("Mul", "x w", "a"), node("Add", "a y", "z"), node("LeakyRelu", "x", "l", alpha=alpha)]
    outputs = [value("z", (17,)), value("l", (17,))]
    proto = model(nodes, [value("x", (17,)), value("y", (17,))], outputs, {"w": zero})
    x, y = values("float32")
    with np.errstate(invalid="ignore"):
        wanted = {"z": x * zero + y, "l": np.where(x > 0, x, x * zero)}
    assert_outputs(proto, {"x": x, "y": y}, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_comparisons_with_nan(dtype: str) -> None:
    chains = {
        "a": ([node("Equal", "x x", "a")], lambda x, y: x == x),
        "b": ([node("Less", "x y", "b1"), node("Not", "b1", "b")], lambda x, y: ~(x < y)),
        "c": ([node("GreaterOrEqual", "y x", "c1"), node("Not", "c1", "c")], lambda x, y: ~(y >= x)),
        "d": ([node("Greater", "x y", "d1"), node("LessOrEqual", "x y", "d2"), node("Or", "d1 d2", "d")],
              lambda x, y: (x > y) | (x <= y)),
        "e": ([node("Less", "y x", "e1"), node("GreaterOrEqual", "x y", "e2"), node("Xor", "e1 e2", "e")],
              lambda x, y: (y < x) ^ (x >= y)),
    }  # fmt: skip
    check(chains, dtype, "bool")


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_of_two_with_nan(dtype: str) -> None:
    chains = {"a": ([node("Max", "x y", "a")], np.maximum), "b": ([node("Min", "x y", "b")], np.minimum)}
    check(chains, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fusion", ["default", "none"])
def test_extremes_of_nan_and_of_nothing_but_infinity(dtype: str, fusion: str) -> None:
    x = np.random.default_rng(3).standard_normal((3, 5, 19)).astype(dtype)
    x[0] = -INF
    x[1] = INF
    x[2, 1, ::3] = NAN
    x[2, 4, 0] = -INF
    nodes, outputs, wanted = [], [], {}
    for op, function in (("ReduceMax", np.max), ("ReduceMin", np.min)):
        for axes in ([0], [1], [2], [1, 2]):
            name = f"{op}{''.join(map(str, axes))}"
            nodes.append(node(op, "x", name, axes=axes, keepdims=0))
            wanted[name] = function(x, axis=tuple(axes))
            outputs.append(value(name, wanted[name].shape, FLOATS[dtype]))
    proto = model(nodes, [value("x", x.shape, FLOATS[dtype])], outputs)
    assert_outputs(proto, {"x": x}, wanted, fusion=fusion)


@pytest.mark.parametrize("spatial", [(9,), (9, 8), (5, 6, 4)], ids=str)
def test_max_pooling_of_nothing_but_infinity(spatial: tuple[int, ...]) -> None:
    rank = len(spatial)
    x = np.random.default_rng(4).standard_normal((1, 16, *spatial)).astype("float32")
    x[:, 0] = -INF
    proto = model([node("MaxPool", "x", "y", kernel_shape=[3] * rank, pads=[1] * 2 * rank)],
                  [value("x", x.shape)], [value("y", x.shape)])  # fmt: skip
    padded = np.pad(x, [(0, 0), (0, 0)] + [(1, 1)] * rank, constant_values=-INF)
    windows = np.lib.stride_tricks.sliding_window_view(padded, [3] * rank, tuple(range(2, 2 + rank)))
    assert_outputs(proto, {"x": x}, {"y": windows.max(axis=tuple(range(-rank, 0)))})


def test_the_largest_number_itself_stays() -> None:
    """A kernel without a maximum keeps a constant that is the largest finite number."""
    low = np.float32(np.finfo(np.float32).min)
    proto = model([node("Clip", "x w", "z")], [value("x", (17,))], [value("z", (17,))], {"w": low})
    x, _ = values("float32")
    assert_outputs(proto, {"x": x}, {"z": np.maximum(x, low)}, fusion="none")


# ------------------------------------------------------------ what activations make of it, zeros, and truth values
ACTIVATIONS = ["Sigmoid", "Tanh", "Softplus", "Elu", "Selu", "Erf", "HardSwish", "Exp", "Relu", "Sign", "Softsign"]
COMPARISONS = {
    "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "op"),
    [*(("Sigmoid", op) for op in COMPARISONS),
     *(pytest.param(a, op, marks=pytest.mark.long)
       for a, op in zip(ACTIVATIONS[1:], 2 * list(COMPARISONS), strict=True))],
)  # fmt: skip
def test_opposite_of_a_comparison_of_what_is_computed(activation: str, op: str) -> None:
    """Each of not, or, xor and where reads both sides, whose definitions may stand in the kernel once only."""
    nodes = [
        node(activation, "x", "s"), node(activation, "y", "t"), node(op, "s t", "a"), node("Not", "a", "b"),
        node("Or", "a b", "c"), node("Xor", "a b", "d"), node("Where", "b s t", "w"), node("Not", "b", "e"),
    ]  # fmt: skip
    x, y = values("float32")
    kinds = {"s": 1, "t": 1, "w": 1, "a": 9, "b": 9, "c": 9, "d": 9, "e": 9}
    outputs = [value(name, x.shape, kind) for name, kind in kinds.items()]
    proto = model(nodes, [value("x", x.shape), value("y", x.shape)], outputs)
    whole = tvm_ext.compile(proto, cache=False).run({"x": x, "y": y})
    s, t = whole["s"], whole["t"]
    holds = COMPARISONS[op](s, t)
    either = holds | ~holds
    wanted = {"a": holds, "b": ~holds, "c": either, "d": holds ^ ~holds, "w": np.where(~holds, s, t), "e": holds}
    for name, expected in wanted.items():
        np.testing.assert_array_equal(whole[name], expected, err_msg=name)
        if name in "dw" or (activation, op) == ("Sigmoid", "Less"):  # a kernel with one and with two of these nodes
            alone = model(nodes, [value("x", x.shape), value("y", x.shape)], [value(name, x.shape, kinds[name])])
            assert_outputs(alone, {"x": x, "y": y}, {name: expected})


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_condition_under_the_opposite_of_another(dtype: str) -> None:
    """NaN is under neither x < y nor x >= y."""
    nodes = [
        node("Less", "x y", "a"), node("GreaterOrEqual", "x y", "b"), node("Where", "b x u", "v"),
        node("Where", "a y v", "z"),
    ]  # fmt: skip
    x, y = values(dtype)
    ends = [value(name, x.shape, FLOATS[dtype]) for name in "xyz"]
    proto = model(nodes, ends[:2], ends[2:], {"u": np.array(7, dtype)})
    wanted = np.where(x < y, y, np.where(x >= y, x, np.array(7, dtype)))
    assert_outputs(proto, {"x": x, "y": y}, {"z": wanted})


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_and_quotients_of_a_constant(dtype: str) -> None:
    x, _ = values(dtype)
    nodes, wanted = [], {}
    weights = {f"c{i}": np.array(number, dtype) for i, number in enumerate((0.0, -0.0, NAN, INF, -INF, 3.0))}
    for op, function in (("Mul", np.multiply), ("Div", np.divide)):
        for name, c in weights.items():
            nodes += [node(op, f"x {name}", f"{op}_{name}"), node(op, f"{name} x", f"{name}_{op}")]
            with np.errstate(all="ignore"):
                wanted |= {f"{op}_{name}": function(x, c), f"{name}_{op}": function(c, x)}
    outputs = [value(name, x.shape, FLOATS[dtype]) for name in wanted]
    proto = model(nodes, [value("x", x.shape, FLOATS[dtype])], outputs, weights)
    assert_outputs(proto, {"x": x}, wanted, accuracy="exact")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fusion", ["default", "none"])
def test_truth_of_nan(dtype: str, fusion: str) -> None:
    """What is not equal to 0 is true, NaN included."""
    chains = {
        "a": ([node("Cast", "x", "a", to=TensorProto.BOOL)], lambda x, y: x != 0),
        "b": ([node("Cast", "y", "b1", to=TensorProto.BOOL), node("Not", "b1", "b")], lambda x, y: y == 0),
        "c": ([node("Equal", "x y", "c1"), node("Not", "c1", "c")], lambda x, y: x != y),
        "d": ([node("Sign", "x", "d1"), node("Cast", "d1", "d", to=TensorProto.BOOL)], lambda x, y: np.sign(x) != 0),
    }
    check(chains, dtype, "bool", fusion=fusion)


@pytest.mark.parametrize("constant", [None, True, [True, False, True, False]])
def test_equal_truth_values(constant: Any) -> None:
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    weights = {} if constant is None else {"q": np.array(constant)}
    inputs = [value(name, (4,), TensorProto.BOOL) for name in ("p", "q") if name not in weights]
    nodes = [node("Equal", "p q", "a"), node("Not", "a", "b"), node("Where", "a b a", "c")]
    proto = model(nodes, inputs, [value(name, (4,), TensorProto.BOOL) for name in "abc"], weights)
    q = weights.get("q", q)
    feeds = {"p": p, "q": q} if constant is None else {"p": p}
    assert_outputs(proto, feeds, {"a": p == q, "b": p != q, "c": np.zeros(4, bool)})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_root_as_a_power(dtype: str) -> None:
    """x^0.5 is infinity at -infinity, where the root is NaN."""
    x, _ = values(dtype)
    ends = [value(name, x.shape, FLOATS[dtype]) for name in "xz"]
    proto = model([node("Pow", "x c", "z")], ends[:1], ends[1:], {"c": np.array(0.5, dtype)})
    z = tvm_ext.compile(proto, cache=False).run({"x": x})["z"]
    with np.errstate(invalid="ignore"):
        root = np.where(x == -INF, INF, np.sqrt(x))  # numpy takes this power for the root
        np.testing.assert_allclose(z, root, rtol=2 * np.finfo(dtype).eps)
