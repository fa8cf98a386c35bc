"""Runs a GEMM or a convolution through the array register by register: the values, and the clocks that they take.

Nothing in it knows a formula: every register moves once a clock, and clocks are counted until the last result is in
the accumulator memory. So it proves both the values of :mod:`.functional` and the closed forms "physical" and
"overlapped" of :mod:`.cycles` and :mod:`.row_stationary`. It is slow (tens of microseconds a clock): for small shapes,
in tests.
"""

from __future__ import annotations

import math

import numpy as np

from ....core.errors import InputError, OptionError
from ..code.sparse import BLOCK, KEPT, kept_depth
from ..config import ACCUMULATOR_DTYPES, Dataflow
from .array_edges import Product
from .cycles import are_sizes, fold_count
from .output_array import OutputRun
from .row_array import RowRun
from .row_stationary import RowMapping
from .stationary_array import StationaryRun


def step_gemm(
    a: np.ndarray, b: np.ndarray, dataflow: str, rows: int, cols: int, acc: np.ndarray | None = None,
    overlapped: bool = False, places: np.ndarray | None = None,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """acc[m, n] + a[m, k] b[k, n], and the clocks until it is in the accumulator memory.

    Args:
        a, b: both int8 (the result is int32, and wraps), both bfloat16 of ml_dtypes, or both float32.
        dataflow: "ws", "os" or "is"; see :mod:`.stationary_array` and :mod:`.output_array` for the registers.
        rows, cols: processing elements.
        acc: what the products are added to, in the dtype of the result; None for zeros. It is not changed.
        overlapped: see :func:`.cycles.gemm_cycles`, models "overlapped" (True) and "physical" (False).
        places: of weights of 2:4, int8, whose kept values are b (:func:`..code.sparse.kept`); None: b is dense.

    Raises:
        InputError: shapes or dtypes do not fit.
        OptionError: an unknown dataflow, or an array without PEs.
    """
    depth = a.shape[-1] if places is None else kept_depth(a.shape[-1])
    if a.ndim != 2 or b.ndim != 2 or depth != b.shape[0] or 0 in (*a.shape, *b.shape):
        raise InputError(f"a {a.shape} and b {b.shape}: (m, k) and (k, n) are needed, each 1 or more")
    result = _accumulator(a, b, (a.shape[0], b.shape[1]), acc)
    if not are_sizes(rows, cols):
        raise OptionError(f"an array of {rows!r} x {cols!r} PEs: 1 x 1 or more is needed")
    dataflow = Dataflow.systolic(dataflow)
    product: Product = np.multiply if places is None else _selected
    if places is None:
        a, b = a.astype(result.dtype), b.astype(result.dtype)
    else:
        a, b = _sparse_registers(a, b, places)
    run: StationaryRun | OutputRun
    if dataflow is Dataflow.WS:
        run = StationaryRun(b, a, result, rows, cols, overlapped, product)
    elif dataflow is Dataflow.IS:
        run = StationaryRun(a.T, b.T, result.T, rows, cols, overlapped, lambda b, a: product(a, b))
    else:
        run = OutputRun(a, b, result, rows, cols, overlapped, product)
    folds = fold_count(dataflow, len(a), len(b), b.shape[1], rows, cols)
    return result, _clocks(run, folds * (sum(a.shape) + b.shape[1] + 4 * (rows + cols)))


def _sparse_registers(a: np.ndarray, b: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the registers of a PE for weights of 2:4 hold, int32: four values of a, the first in the lowest byte, for
    each of the two rows that are kept of b; and a weight above the two bits of its place.

    Raises:
        InputError: dtypes or shapes are others.
    """
    if (a.dtype, b.dtype) != (np.int8, np.int8) or places.shape != b.shape or places.max() >= BLOCK:
        what = f"a is {a.dtype}, b is {b.dtype} {b.shape}, places are {places.shape}"
        raise InputError(f"{what}: int8 is needed, and places 0 to 3 of b")
    blocks = np.pad(a, ((0, 0), (0, -a.shape[1] % BLOCK))).view("<i4").astype(np.int32)
    return np.repeat(blocks, KEPT, axis=1), b.astype(np.int32) * BLOCK + places.astype(np.int32)


def _selected(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The product in a PE for weights of 2:4."""
    value = (values << (24 - 8 * (weight & (BLOCK - 1)))) >> 24
    return np.asarray(value * (weight >> 2))


def step_conv(
    image: np.ndarray, filters: np.ndarray, mapping: RowMapping, rows: int, cols: int, acc: np.ndarray | None = None,
    overlapped: bool = False,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """acc[pixels, M] + image[C, H, W] * filters[M, C, R, S], row stationary, and the clocks that it takes.

    Args:
        image: with its padding.
        filters: in the same dtype, one of :func:`step_gemm`.
        mapping: where it lies in the array of rows x cols PEs.
        acc, overlapped: as there.

    Raises:
        InputError: shapes or dtypes do not fit, or the mapping is of another convolution.
    """
    shape = mapping.shape
    width = (shape.out_size[1] - 1) * shape.strides[1] + shape.span
    height = max(shape.image_rows(0, shape.out_size[0], range(shape.kernel[0]))) + 1
    fits = len(image) == shape.channels and image.shape[1] >= height and image.shape[2] >= width
    if not fits or filters.shape != (shape.filters, shape.channels, *shape.kernel):
        raise InputError(f"image {image.shape} and filters {filters.shape} are not those of {shape}")
    result = _accumulator(image, filters, (math.prod(shape.out_size), shape.filters), acc)
    image, filters = image.astype(result.dtype), filters.astype(result.dtype)
    run = RowRun(image, filters, result.reshape(*shape.out_size, -1), mapping, rows, cols, overlapped)
    values = mapping.q * mapping.r * shape.span * len(shape.image_rows(0, mapping.e, range(mapping.h)))
    block = mapping.work * mapping.r * mapping.t * mapping.h + mapping.windows * (mapping.work + values)
    return result, _clocks(run, math.prod(mapping.passes) * (block + 4 * (rows + cols)))


def _clocks(run: StationaryRun | OutputRun | RowRun, limit: int) -> int:
    """Clocks until a run is done; a register that is wrong may let it never be, and more than `limit` are an error."""
    with np.errstate(over="ignore", invalid="ignore"):
        for clock in range(1, limit + 1):
            if run.clock():
                return clock
    raise AssertionError(f"{type(run).__name__} has not finished after {limit} clocks")


def _accumulator(a: np.ndarray, b: np.ndarray, shape: tuple[int, int], acc: np.ndarray | None) -> np.ndarray:
    """A new array for the result; raises what :func:`step_gemm` says."""
    if a.dtype != b.dtype or str(a.dtype) not in ACCUMULATOR_DTYPES:
        raise InputError(f"a is {a.dtype}, b is {b.dtype}: both int8, bfloat16 or float32 are needed")
    dtype = np.dtype(ACCUMULATOR_DTYPES[str(a.dtype)])
    if acc is None:
        return np.zeros(shape, dtype)
    if acc.shape != shape or acc.dtype != dtype:
        raise InputError(f"acc is {acc.dtype} {acc.shape}: {dtype} {shape} is needed")
    return acc.copy()
