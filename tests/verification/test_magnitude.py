"""Lengths and magnitudes of chains of ONNX operators."""

import math

import numpy as np
import onnx
import pytest

from tests.onnx_graphs import node, random
from tvm_ext.verification.magnitude import FOLDED, Chain


def chain(*nodes: onnx.NodeProto, **arrays: np.ndarray) -> Chain:
    return Chain(nodes, arrays)


def test_moves_have_no_length() -> None:
    moved = chain(node("Relu", "x", "a"), node("Transpose", "a", "b"), node("MaxPool", "b", "y", kernel_shape=[2, 2]))
    assert moved.length() == 0


@pytest.mark.parametrize(
    ("anchor", "arrays", "length"),
    [
        (node("Conv", "x w b", "y"), {"w": random(8, 3, 5, 5)}, 76),
        (node("Conv", "x w", "y", group=8), {"w": random(8, 1, 3, 3)}, 10),
        (node("ConvTranspose", "x w", "y"), {"w": random(6, 4, 3, 3)}, 55),
        (node("MatMul", "x w", "y"), {"x": random(3, 7), "w": random(7, 5)}, 9),
        (node("Gemm", "x w b", "y", transB=1), {"x": random(3, 7), "w": random(5, 7)}, 9),
        (node("GlobalAveragePool", "x", "y"), {"x": random(1, 4, 7, 9)}, 64),
        (node("AveragePool", "x", "y", kernel_shape=[3, 3]), {}, 9),
        (node("Add", "x w", "y"), {}, 1),
    ],
)
def test_lengths(anchor: onnx.NodeProto, arrays: dict[str, np.ndarray], length: int) -> None:
    assert chain(anchor, **arrays).length() == length + FOLDED


def test_a_convolution_is_bounded_by_norms() -> None:
    x, w, b = random(1, 3, 9, 9), random(4, 3, 3, 3), random(4)
    bound = chain(node("Conv", "x w b", "y"), x=x, w=w, b=b).magnitude("y")
    windows = np.lib.stride_tricks.sliding_window_view(np.abs(x[0]), (3, 3), axis=(1, 2))
    sums = np.einsum("cijab,ocab->oij", windows.astype(np.float64), np.abs(w)) + np.abs(b)[:, None, None]
    assert sums.max() <= bound < 4 * sums.max()


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_of_matrices(transposed: bool) -> None:
    x, w = random(5, 11), random(11, 6)
    one = node("Gemm", "x w", "y", transB=1, alpha=2.0) if transposed else node("MatMul", "x w", "y")
    bound = chain(one, x=x, w=w.T.copy() if transposed else w).magnitude("y") / (2.0 if transposed else 1.0)
    assert (
        (np.abs(x) @ np.abs(w)).max()
        <= bound
        <= np.linalg.norm(x, axis=1).max() * np.linalg.norm(w, axis=0).max() * 1.001
    )


def test_what_cancels_counts() -> None:
    """A batch norm that takes a thousand away from a thousand: the small result has the rounding of the large ones."""
    arrays = {"x": random(1, 2, 5, 5) + 1000, "g": np.ones(2, np.float32), "b": np.zeros(2, np.float32),
              "m": np.full(2, 1000, np.float32), "v": np.ones(2, np.float32)}  # fmt: skip
    assert chain(node("BatchNormalization", "x g b m v", "y"), **arrays).magnitude("y") > 1900
    assert chain(node("Sub", "x m", "y"), x=arrays["x"], m=arrays["m"], y=arrays["x"] - 1000).magnitude("y") > 1900
    rows = random(3, 8) + 1000
    assert chain(node("LayerNormalization", "x s", "y"), x=rows, s=np.ones(8, np.float32)).magnitude("y") > 300


def test_magnitudes_go_through_a_chain() -> None:
    nodes = (node("Conv", "x w", "c"), node("Mul", "c s", "m"), node("Relu", "m", "r"), node("Add", "r z", "y"))
    x, w = random(1, 3, 5, 5), random(4, 3, 1, 1)
    alone = chain(*nodes[:1], x=x, w=w).magnitude("c")
    bound = chain(*nodes, x=x, w=w, s=np.full(1, 10, np.float32), z=np.full(1, 7, np.float32)).magnitude("y")
    assert bound == pytest.approx(10 * alone + 7)


def test_what_is_not_finite_is_left_out() -> None:
    x = random(4, 4)
    x[0, 0], x[1, 1] = np.nan, np.inf
    assert math.isfinite(chain(node("MatMul", "x w", "y"), x=x, w=random(4, 4)).magnitude("y"))


def test_what_jumps_may_be_larger_than_its_operand() -> None:
    small, other = np.full(4, 1e-3, np.float32), np.full(4, 2e-3, np.float32)
    for jump in (node("Sign", "x", "s"), node("Ceil", "x", "s")):
        assert chain(jump, node("Mul", "s a", "y"), x=small, a=np.ones(4, np.float32)).magnitude("y") >= 1
    nodes = node("Less", "x z", "l"), node("Cast", "l", "s", to=1), node("Mul", "s a", "y")
    assert chain(*nodes, x=small, z=other, a=np.ones(4, np.float32)).magnitude("y") >= 1
