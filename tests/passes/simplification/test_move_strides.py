"""move-strides: pixels that nothing reads are not computed, and numbers stay."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.onnx_graphs import model, node, value
from tests.onnx_graphs import random as normal
from tests.passes.helpers import apply, build, const, ops, random, rewritten
from tests.passes.stages import agrees
from tvm_ext.core.graph.relax_graph import main_bindings, op_name, shape_of
from tvm_ext.passes.simplification.move_strides import MoveStrides

W, POINT = random(6, 6, 3, 3, seed=1), random(4, 6, 1, 1, seed=2)


def conv(emit: Any, x: Any, **attributes: Any) -> Any:
    return emit(R.nn.conv2d(x, const(W), padding=1, **attributes))


def point(emit: Any, x: Any, strides: Any = 2, **attributes: Any) -> Any:
    return emit(R.nn.conv2d(x, const(POINT), strides=strides, **attributes))


def images(body: Any, *shapes: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Operators of the result of the pass, with the size of each one's image; both modules agree."""
    bindings = main_bindings(rewritten(MoveStrides(), build(body, *shapes)).mod)
    named = [(op_name(b.value).rpartition(".")[2], (shape_of(b.var) or ())[2:]) for b in bindings]
    return [(name, size) for name, size in named if name]


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 5), (2, 1)])
def test_a_convolution_gets_the_stride_of_all_its_readers(size: tuple[int, int]) -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.nn.relu(emit(R.add(conv(emit, x), const(random(6, 1, 1))))))
        return point(emit, y), point(emit, y)

    half = (-(-size[0] // 2), -(-size[1] // 2))
    names = ["conv2d", "add", "relu", "conv2d", "conv2d"]
    assert images(body, (2, 6, *size)) == [(name, half) for name in names]


def test_an_operand_that_something_else_reads_whole_is_sliced() -> None:
    def body(emit: Any, x: Any) -> Any:
        first = emit(R.nn.relu(conv(emit, x)))
        y = emit(R.nn.relu(emit(R.add(conv(emit, first), first))))
        return point(emit, y)

    assert images(body, (1, 6, 8, 8)) == [
        ("conv2d", (8, 8)), ("relu", (8, 8)), ("conv2d", (4, 4)), ("strided_slice", (4, 4)), ("add", (4, 4)),
        ("relu", (4, 4)), ("conv2d", (4, 4)),
    ]  # fmt: skip


def test_through_pointwise_convolutions_strides_multiply() -> None:
    def body(emit: Any, x: Any) -> Any:
        square = emit(R.nn.conv2d(conv(emit, x, strides=(1, 2)), const(random(6, 6, 1, 1)), strides=(3, 1)))
        return point(emit, square, strides=(2, 1))

    assert images(body, (1, 6, 20, 17)) == [("conv2d", (4, 9))] * 3


@pytest.mark.parametrize("shape", [(1, 6, 8, 8), (6, 1, 1), (8, 8), (8,), (1, 1, 8, 1), (1, 6, 1, 8), ()])
def test_operands_that_broadcast(shape: tuple[int, ...]) -> None:
    def body(emit: Any, x: Any) -> Any:
        return point(emit, emit(R.add(conv(emit, x), const(random(*shape)))))

    assert images(body, (1, 6, 8, 8))[0] == ("conv2d", (4, 4))


def test_scales_of_channels_are_no_pixels() -> None:
    scales, zeros = const(np.linspace(0.1, 0.2, 6)), const(np.zeros(6), "int8")

    def body(emit: Any, x: Any) -> Any:
        stored = emit(R.quantize(conv(emit, x), scales, zeros, axis=1, out_dtype="int8"))
        return point(emit, emit(R.dequantize(stored, scales, zeros, axis=1, out_dtype="float32")))

    assert [size for _, size in images(body, (1, 6, 6, 6))] == [(3, 3)] * 4


UNTOUCHED: dict[str, Any] = {
    "an output": lambda emit, x: (y := conv(emit, x), point(emit, y)),
    "a reader of every pixel": lambda emit, x: (point(emit, y := conv(emit, x)), conv(emit, y)),
    "a padded reader": lambda emit, x: point(emit, conv(emit, x), padding=1),
    "nothing but elementwise": lambda emit, x: point(emit, emit(R.nn.relu(x))),
    "a pool between": lambda emit, x: point(emit, emit(R.nn.max_pool2d(conv(emit, x), (2, 2)))),
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_is_left_alone(case: str) -> None:
    mod = build(UNTOUCHED[case], (1, 6, 8, 8))
    result = apply(MoveStrides(), mod)
    assert not result.fired and ops(result.mod) == ops(mod)


def test_a_model_agrees_with_onnxruntime() -> None:
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"),
        node("Conv", "b w", "c", pads=[1, 1, 1, 1]), node("Add", "c b", "d"), node("Relu", "d", "e"),
        node("Conv", "e p", "f", strides=[2, 2]),
        node("Conv", "e q", "g", strides=[2, 2]), node("Add", "f g", "y"),
    ]  # fmt: skip
    constants = {"w": normal(6, 6, 3, 3, scale=0.2), "p": normal(5, 6, 1, 1), "q": normal(5, 6, 1, 1)}
    agrees(model(nodes, [value("x", (1, 6, 9, 7))], [value("y", (1, 5, 5, 4))], constants))
