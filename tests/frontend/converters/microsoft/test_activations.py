"""Activations of com.microsoft against onnxruntime; those that its CPU lacks against float64."""

import numpy as np
import pytest
from scipy import special

from .cases import Known, agree, case, floats, rng_of

SHAPE = (3, 5, 14)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.float64(x) * 0.5 * (1 + special.erf(np.float64(x) / np.sqrt(2)))


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_with_a_bias(operator: str) -> None:
    rng = rng_of(1)
    agree(operator, case(3 * floats(rng, *SHAPE), Known(floats(rng, 14))), case(floats(rng, *SHAPE), floats(rng, 14)))


def test_without_one() -> None:
    rng = rng_of(2)
    agree("FastGelu", case(3 * floats(rng, *SHAPE)))
    agree("Gelu", case(3 * floats(rng, *SHAPE)))
    agree("QuickGelu", case(3 * floats(rng, *SHAPE)), case(floats(rng, *SHAPE), alpha=0.7))
    agree("ScaledSiLU", case(3 * floats(rng, *SHAPE), alpha=0.7), case(floats(rng, *SHAPE), np.float32(1.3)))


def test_a_split_one() -> None:
    rng = rng_of(3)
    x, bias = floats(rng, *SHAPE), floats(rng, 14)
    y = x + bias
    agree("BiasSplitGelu", case(x, bias), wanted=[np.float32(y[..., :7] * gelu(y[..., 7:]))])


def test_a_product() -> None:
    rng = rng_of(4)
    x, weight, bias = floats(rng, *SHAPE), floats(rng, 14, 9), floats(rng, 9)
    y = np.float64(x) @ weight + bias
    tanh = np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))
    agree("GemmFastGelu", case(x, Known(weight), Known(bias)), wanted=[np.float32(0.5 * y * (1 + tanh))], atol=1e-5)


def test_sums() -> None:
    rng = rng_of(5)
    x, bias, skip = floats(rng, *SHAPE), floats(rng, 14), floats(rng, *SHAPE)
    agree("BiasAdd", case(x, bias, skip), wanted=[x + bias + skip])
    cases = [case(x, bias, skip, outputs=2), case(skip, bias, None, np.float32(0.3), np.array(False))]
    agree("BiasDropout", *cases[:1], wanted=[x + bias + skip, np.ones(SHAPE, bool)], varied=False)


@pytest.mark.parametrize(
    ("shape", "axis", "inner", "own"),
    [((2, 3, 4, 5), 3, 0, (4, 5)), ((2, 3, 4, 5), 3, 1, (2, 1, 1, 5)), ((6, 4, 5), 1, 0, (4, 5)),
     ((6, 4, 5), 2, 1, (6, 5)), ((2, 3, 4, 5), 3, 0, (1, 1, 4, 5))],
)  # fmt: skip
def test_softmax(shape: tuple[int, ...], axis: int, inner: int, own: tuple[int, ...]) -> None:
    rng = rng_of(6, axis, inner)
    x, bias = floats(rng, *shape), floats(rng, *own)
    whole = bias if len(own) == len(shape) or not inner else bias.reshape(6, 1, 5)
    y = (np.float64(x) + whole).reshape(*shape[:axis], -1)
    agree("BiasSoftmax", case(x, bias, axis=axis, is_inner_broadcast=inner),
          wanted=[np.float32(special.softmax(y, -1).reshape(shape))])  # fmt: skip


def test_a_scale_of_another_type() -> None:
    """The result is of the first operand's, and rounded to no other."""
    rng = rng_of(12)
    agree("ScaledSiLU", case(floats(rng, 4, 7), np.float16(0.02)), case(floats(rng, 4, 7), Known(np.float16(1.7))))
