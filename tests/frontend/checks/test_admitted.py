"""Sizes that a model admits: stated by weights and states, least by windows; and models that compile as they are."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.errors import InputError, TvmExtError, UnsupportedError
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend.checks.admitted import admitted
from tvm_ext.frontend.reading.shapes import free_shapes
from tvm_ext.verification.verify import verify

Shape = tuple[int | str, ...]


def options_of(proto: onnx.ModelProto, **stated: Any) -> CompileOptions:
    options = CompileOptions.of(**stated)
    return admitted(proto, options.named(free_shapes(proto.graph, dict(options.shapes))))


def graph(nodes: list[onnx.NodeProto], shape: Shape, weights: dict[str, np.ndarray], *more: Any) -> onnx.ModelProto:
    return model(nodes, [value("x", shape), *more], [value("y", None)], weights)


DENSE = graph([node("MatMul", "x w", "y")], ("N", "D"), {"w": random(23, 4)})
GEMM = graph([node("Gemm", "x w", "y", transB=1)], ("N", "D"), {"w": random(4, 23)})
BIAS = graph([node("Add", "x w", "y")], ("N", "D"), {"w": random(23)})
FLAT = graph(
    [node("Reshape", "x s", "a"), node("MatMul", "a w", "y")], ("N", 3, "D"),
    {"s": np.array([-1, 69]), "w": random(69, 4)},
)  # fmt: skip
LSTM = graph(
    [onnx.helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y"], hidden_size=5)],
    ("T", "B", "D"), {"w": random(1, 20, 23), "r": random(1, 20, 5)},
    value("h", (1, 2, 5)), value("c", (1, 2, 5)),
)  # fmt: skip
CONV = graph(
    [node("Conv", "x w", "a"), node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2]),
     node("Conv", "b w", "y")],
    (1, 1, "H", "W"), {"w": random(1, 1, 3, 5)},
)  # fmt: skip


@pytest.mark.parametrize(
    ("proto", "shape", "dims"),
    [
        (DENSE, ("N", 23), ()),
        (GEMM, ("N", 23), ()),
        (BIAS, ("N", 23), ()),
        (FLAT, ("N", 3, 23), ()),
        (LSTM, ("T", 2, 23), ()),
        (CONV, (1, 1, "H", "W"), (("H", (8, 512)), ("W", (14, 512)))),
    ],
)
def test_sizes_that_weights_states_and_windows_need(proto: onnx.ModelProto, shape: Shape, dims: Any) -> None:
    options = options_of(proto)
    assert dict(options.shapes)["x"] == shape and options.dims == dims


def test_windows_that_pad_as_much_need_nothing() -> None:
    same = node("Conv", "x w", "y", auto_pad="SAME_UPPER")
    for conv in (same, node("Conv", "x w", "y", pads=[1, 2, 1, 2])):
        proto = graph([conv], (1, 1, "H", "W"), {"w": random(1, 1, 3, 5)})
        assert options_of(proto).dims == ()


def test_a_range_of_sizes_where_a_pool_rounds() -> None:
    pool = node("MaxPool", "x", "a", kernel_shape=[4], strides=[4])
    proto = graph([pool, node("Squeeze", "a s", "y")], (1, 2, "W"), {"s": np.array([2])})
    assert options_of(proto).dims == (("W", (4, 7)),)


def test_what_is_stated_stays_as_it_is() -> None:
    assert options_of(DENSE, shapes={"x": ("N", 7)}).shapes == (("x", ("N", 7)),)
    assert options_of(DENSE, dims={"D": (1, 9)}).dims == (("D", (1, 9)),)


def test_a_gap_of_two_dimensions_states_neither() -> None:
    proto = graph([node("Reshape", "x s", "y")], ("A", "B"), {"s": np.array([23])})
    options = options_of(proto)
    assert dict(options.shapes)["x"] == ("A", "B") and options.dims == ()


@pytest.mark.parametrize("proto", [DENSE, FLAT, LSTM, CONV], ids=["dense", "flat", "lstm", "conv"])
def test_such_models_compile_as_they_are(proto: onnx.ModelProto) -> None:
    compiled = tvm_ext.compile(proto, threads=2, cache=False)
    assert verify(compiled, proto).ok
    shape = [dim if isinstance(dim, int) else 1 for dim in compiled.inputs[0].shape]
    with pytest.raises(InputError):
        compiled.run({"x": np.zeros([*shape[:-1], shape[-1] + 4000], np.float32)})


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("Squeeze", "x s", "y")], {"s": np.array([7])}),
        ([node("Conv", "x w", "y")], {"w": random(3)}),
        ([node("MaxPool", "x", "y", kernel_shape=[2], pads=[1])], {}),
        ([node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[1])], {}),
        ([node("Reshape", "x s", "y")], {"s": np.array(3)}),
        ([node("LSTM", "x w r", "y", hidden_size=2)], {"w": random(3), "r": random(3)}),
    ],
)
def test_an_invalid_node_is_refused_as_it_is_of_numbers(nodes: Any, weights: dict[str, np.ndarray]) -> None:
    proto = graph(nodes, ("N", "D"), weights)
    for options in ({}, {"shapes": {"x": (2, 3)}}):
        with pytest.raises(TvmExtError):
            tvm_ext.compile(proto, cache=False, **options)


def test_a_model_that_takes_no_size_is_refused() -> None:
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "x v", "b"), node("Add", "a b", "y")]
    proto = graph(nodes, ("N", "D"), {"w": random(3, 4), "v": random(5, 4)})
    with pytest.raises(UnsupportedError):
        tvm_ext.compile(proto, cache=False)
