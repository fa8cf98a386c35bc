"""Weights of a few bits in blocks against onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.graphs import imported
from tvm_ext.core.errors import UnsupportedError

from .cases import Known, agree, built, case, floats, rng_of


@pytest.mark.parametrize("bits", [4, 8, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(("depth", "block"), [(64, 16), (100, 32), (48, 128)])
def test_matmuls(bits: int, depth: int, block: int) -> None:
    rng, rows, blocks = rng_of(1, bits, depth), 11, -(-depth // block)
    packed = Known(np.uint8(rng.integers(0, 256, (rows, blocks, block * bits // 8))))
    scales = Known(np.float32(rng.uniform(0.01, 0.1, (rows, blocks))))
    points = Known(np.uint8(rng.integers(0, 256, (rows, -(-blocks * bits // 8)))))
    more = {"N": rows, "K": depth, "bits": bits, "block_size": block}
    size = 1e-6 * (1 << bits)  # weights of up to half of 2^bits steps of 0.1
    cases = [
        case(floats(rng, 2, 3, depth), packed, scales, **more),
        case(floats(rng, 5, depth), packed, scales, points, **more),
        case(floats(rng, 1, depth), packed, scales, points, None, Known(floats(rng, rows)), accuracy_level=1, **more),
    ]
    agree("MatMulNBits", *cases, rtol=1e-5, atol=size * np.sqrt(depth))


def test_points_of_floats() -> None:
    rng = rng_of(2)
    packed, scales = Known(np.uint8(rng.integers(0, 256, (7, 2, 8)))), Known(np.float32(rng.uniform(0.01, 0.1, (7, 2))))
    points = Known(np.float32(rng.uniform(6, 10, (7, 2))))
    agree("MatMulNBits", case(floats(rng, 5, 32), packed, scales, points, N=7, K=32, bits=4, block_size=16), atol=2e-5)


def test_a_weight_that_is_computed_is_refused() -> None:
    rng = rng_of(3)
    node = case(floats(rng, 5, 32), np.uint8(rng.integers(0, 256, (7, 2, 8))), Known(floats(rng, 7, 2)), N=7, K=32,
                block_size=16)  # fmt: skip
    with pytest.raises(UnsupportedError, match="B must be known"):
        imported(built("MatMulNBits", [node], "com.microsoft", "float32")[0])


@pytest.mark.parametrize("kind", [0, 1])
def test_codes(kind: int) -> None:
    rng, more = rng_of(4, kind), {"N": 6, "K": 40, "block_size": 16, "quant_type": kind}
    packed, scales = Known(np.uint8(rng.integers(0, 256, 120))), Known(np.float32(rng.uniform(0.1, 1, 15)))
    agree("MatMulBnb4", case(floats(rng, 5, 40), packed, scales, **more), atol=1e-5)


@pytest.mark.parametrize("points", [False, True])
def test_rows_of_a_table(points: bool) -> None:
    rng = rng_of(5, points)
    table, scales = Known(np.uint8(rng.integers(0, 256, (9, 24)))), Known(np.float32(rng.uniform(0.1, 1, (9, 3))))
    more = {"bits": 4, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    zeros = [Known(np.uint8(rng.integers(0, 256, (9, 2))))] if points else []
    agree("GatherBlockQuantized", case(table, rng.integers(0, 9, (2, 5)), scales, *zeros, **more))


def test_narrow_floats() -> None:
    rng = rng_of(6)
    packed, scales = Known(np.uint8(rng.integers(0, 256, (7, 2, 8)))), Known(np.float16(rng.uniform(0.01, 0.1, (7, 2))))
    node = case(np.float16(floats(rng, 5, 32)), packed, scales, N=7, K=32, bits=4, block_size=16)
    agree("MatMulNBits", node, rtol=2**-9, atol=2**-9)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_a_table_of_four_bits(dtype: str, axis: int) -> None:
    rng, kind = rng_of(7, axis), np.dtype(getattr(ml_dtypes, dtype))
    low, high = (-8, 8) if dtype == "int4" else (0, 16)
    table, blocks = Known(rng.integers(low, high, (40, 48)).astype(kind)), (40, 3) if axis else (3, 48)
    scales, points = Known(np.float32(rng.uniform(0.1, 1, blocks))), Known(rng.integers(low, high, blocks).astype(kind))
    more = {"block_size": 16, "quantize_axis": axis}
    rows = np.int32(rng.integers(0, 40, (2, 5)))
    agree("GatherBlockQuantized", case(table, rows, scales, **more), case(table, rows, scales, points, **more))
    agree("GatherBlockQuantized", case(table, rows, scales, points, gather_axis=1, **more))
