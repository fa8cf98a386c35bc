"""Weights of a few bits in blocks against onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.graphs import imported
from tvm_ext.core.errors import ModelError, UnsupportedError

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


def _matmul(**wrong: tuple[int, ...]) -> Any:
    """A matmul of (2, 40) by 5 rows of 4 bits in blocks of 16, some shapes of which are others."""
    shapes = {"x": (2, 40), "codes": (5, 3, 8), "scales": (5, 3), "points": (5, 2)} | wrong
    rng, byte = rng_of(8), lambda shape: Known(np.uint8(rng.integers(0, 256, shape)))
    groups = Known(np.int32(rng.integers(0, 3, shapes["groups"]))) if "groups" in wrong else None
    return case(
        floats(rng, *shapes["x"]), byte(shapes["codes"]), Known(floats(rng, *shapes["scales"])),
        Known(floats(rng, *shapes["floats"])) if "floats" in wrong else byte(shapes["points"]),
        groups, Known(floats(rng, *shapes.get("bias", (5,)))), N=5, K=40, bits=4, block_size=16,
    )  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [{"x": (2, 39)}, {"x": (2, 48)}, {"x": (39,)}, {"codes": (5, 24)}, {"codes": (120,)}, {"codes": (5, 3, 4)},
     {"codes": (5, 3, 16)}, {"codes": (5, 2, 8)}, {"codes": (4, 3, 8)}, {"codes": (6, 3, 8)}, {"scales": (3, 5)},
     {"scales": (14,)}, {"scales": (5, 4)}, {"points": (5, 3)}, {"points": (9,)}, {"points": (2, 5)},
     {"floats": (5, 2)}, {"floats": (16,)}, {"groups": (39,)}, {"bias": (1,)}],
)  # fmt: skip
def test_operands_that_are_not_those_of_the_attributes_are_refused(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises((UnsupportedError, ModelError)):
        imported(built("MatMulNBits", [_matmul(**wrong)], "com.microsoft", "float32")[0])


def test_flat_scales_and_points_and_a_vector_for_rows() -> None:
    flat = _matmul(scales=(15,), points=(10,)), _matmul(floats=(15,)), _matmul(x=(40,)), _matmul(x=(40,), points=(10,))
    agree("MatMulNBits", *flat, rtol=1e-5, atol=1e-4)
    grouped = [_matmul(groups=(40,), floats=(15,)), _matmul(groups=(40,), floats=(15,), x=(40,))]
    agree("MatMulNBits", *grouped, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("block", [24, 8, 0])
def test_blocks_that_the_operators_do_not_have_are_refused(block: int) -> None:
    node = _matmul()
    node.attributes["block_size"] = block
    with pytest.raises(UnsupportedError):
        imported(built("MatMulNBits", [node], "com.microsoft", "float32")[0])


@pytest.mark.parametrize(
    ("table", "scales", "points", "axis"),
    [((9, 24), (8, 3), (9, 2), 1), ((9, 24), (9, 4), (9, 2), 1), ((9, 24), (9, 2), (9, 2), 1),
     ((9, 24), (9, 3), (9, 3), 1), ((9, 24), (27,), (9, 2), 1), ((9, 24), (9, 3), (8, 2), 1),
     ((9, 24), (9, 3), (18,), 1), ((9, 24), (9, 3), (9, 2), 2), ((16, 24), (2, 24), (1, 24), 0)],
)  # fmt: skip
def test_tables_whose_scales_are_not_theirs_are_refused(
    table: tuple[int, ...], scales: tuple[int, ...], points: tuple[int, ...], axis: int
) -> None:
    rng = rng_of(9)
    parts = [Known(np.uint8(rng.integers(16, 256, shape))) for shape in (table, points)]
    node = case(parts[0], rng.integers(0, 8, (2,)), Known(floats(rng, *scales)), parts[1], bits=4, block_size=16,
                quantize_axis=axis)  # fmt: skip
    with pytest.raises((UnsupportedError, ModelError)):
        imported(built("GatherBlockQuantized", [node], "com.microsoft", "float32")[0])


@pytest.mark.parametrize(("size", "blocks", "depth"), [(119, 15, 40), (120, 14, 40), (120, 15, 41)])
def test_codes_that_are_too_few_are_refused(size: int, blocks: int, depth: int) -> None:
    rng, more = rng_of(10), {"N": 6, "K": 40, "block_size": 16, "quant_type": 0}
    node = case(floats(rng, 5, depth), Known(np.uint8(rng.integers(0, 256, size))), Known(floats(rng, blocks)), **more)
    with pytest.raises((UnsupportedError, ModelError)):
        imported(built("MatMulBnb4", [node], "com.microsoft", "float32")[0])


def test_whole_numbers_of_long_blocks_do_not_wrap() -> None:
    """Sums of the digits of 8-bit codes pass 31 bits behind 256 of them."""
    for block in (256, 512):
        codes = Known(np.full((32, 1024 // block, block), 255, np.uint8))
        scales = Known(np.repeat(np.arange(1, 33, dtype=np.float32)[:, None], 1024 // block, 1))
        node = case(np.ones((1, 1024), np.float32), codes, scales, N=32, K=1024, bits=8, accuracy_level=4,
                    block_size=block)  # fmt: skip
        agree("MatMulNBits", node, rtol=1e-3)
