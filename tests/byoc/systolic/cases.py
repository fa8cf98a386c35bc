"""Programs and reference results that several tests share."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, Step, matmul
from tvm_ext.byoc.systolic.code.problem import GemmProblem
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.scale_sim import Memories, MemoryCycles, scale_sim_cycles, window_addresses

#: So small that every shape of the tests needs many tiles.
SMALL_INT8 = Accelerator(rows=4, cols=4, scratchpad_bytes=2048, accumulator_bytes=1024)
SMALL_FLOAT = Accelerator(rows=4, cols=4, dtype="float32", scratchpad_bytes=4096, accumulator_bytes=1024)
#: 1, primes, sizes that no array divides.
SIZES = [(1, 1, 1), (1, 17, 5), (7, 13, 1), (33, 65, 17), (5, 127, 31), (64, 32, 48)]


def table_rows(name: str) -> list[dict[str, str]]:
    """Rows of a table of what others computed."""
    with (Path(__file__).with_name("data") / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scalesim_rows() -> list[dict[str, str]]:
    """What SCALE-Sim 3.0.0 printed of GEMMs."""
    return table_rows("scalesim_3_0_0_gemm.csv")


def scalesim_memory_rows() -> list[dict[str, str]]:
    """What SCALE-Sim 3.0.0 printed of layers with three memories; `benchmarks/offloading/scalesim_rows.py` ran it."""
    return table_rows("scalesim_3_0_0_memory.csv")


def scalesim_memory_cycles(row: dict[str, str]) -> tuple[MemoryCycles, MemoryCycles]:
    """Of such a row: what is computed, and what was printed."""
    height, width, *window, channels, filters, stride = map(int, row["sizes"].replace("x", " ").split())
    sizes = [1024 * int(kib) for kib in row["kib"].split()]
    memories = Memories(*sizes, None if row["bandwidth"] == "CALC" else int(row["bandwidth"]))
    array, sparsity = (tuple(map(int, row[name].split(by))) for name, by in (("array", "x"), ("sparsity", ":")))
    a = window_addresses(height, width, (window[0], window[1]), channels, stride)
    computed = scale_sim_cycles(row["dataflow"], a, filters, *array, memories, (sparsity[0], sparsity[1]))
    return computed, MemoryCycles(*(int(row[name]) for name in ("total_with_prefetch", "total", "stalls")))


def mapping_bounds() -> list[dict[str, str]]:
    """Fewest bytes of DRAM of 20 layers with three sizes of buffers, by accelforge 1.0.467."""
    return table_rows("accelforge_1_0_467_dram.csv")


def energy_bounds() -> list[dict[str, str]]:
    """The least that memories take for these layers, in the same order, by accelforge 1.0.467."""
    return table_rows("accelforge_1_0_467_energy.csv")


def bounded_problem(row: dict[str, str]) -> tuple[GemmProblem, Accelerator]:
    """The GEMM of such a row, each of its batch with operands of its own, and the accelerator."""
    batch, m, k, n = (int(row[name]) for name in ("batch", "m", "k", "n"))
    problem = GemmProblem(m=m, k=k, n=n, batch=batch, a_batches=batch, b_batches=batch, out_bytes=1)
    sizes = {name: int(row[name]) for name in ("scratchpad_bytes", "accumulator_bytes")}
    return problem, Accelerator(**sizes)


def gemm_of(row: dict[str, str]) -> tuple[str, int, int, int, int, int]:
    """Dataflow, m, k, n, rows and columns of the array of a row."""
    m, k, n, rows, cols = (int(row[name]) for name in ("M", "K", "N", "rows", "cols"))
    return row["dataflow"], m, k, n, rows, cols


def random_int8(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def random_float(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution function, in float64."""
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def dense(
    accelerator: Accelerator,
    sizes: tuple[int, int, int],
    weights: np.ndarray | None = None,
    steps: Sequence[Step] = (),
    out_dtype: str = "",
    more: Sequence[Tensor] = (),
    dataflow: str | None = None,
) -> Program:
    """y = epilogue(x w) of one layer; w is an input where no weights are given."""
    m, k, n = sizes
    tensors = [
        Tensor("x", "input", (m, k), accelerator.tensor_dtype),
        Tensor("y", "output", (m, n), out_dtype or accelerator.accumulator_dtype),
        *more,
    ]
    if weights is None:
        tensors.append(Tensor("w", "input", (k, n), accelerator.tensor_dtype))
    right: Any = "w" if weights is None else weights
    return lower([matmul("fc", "x", right, "y", sizes, steps=tuple(steps))], tensors, accelerator, dataflow)


def direct_conv2d(x: np.ndarray, weights: np.ndarray, geometry: ConvGeometry, pad_value: float = 0) -> np.ndarray:
    """Convolution by its definition, NCHW and OIHW, in the dtype of x; groups follow from the shapes."""
    top, left, bottom, right = geometry.padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad_value)
    filters, depth, kernel_height, kernel_width = weights.shape
    groups = x.shape[1] // depth
    height, width = geometry.out_size
    out = np.zeros((x.shape[0], filters, height, width), x.dtype)
    for f in range(filters):
        channels = slice(f // (filters // groups) * depth, (f // (filters // groups) + 1) * depth)
        for dy in range(kernel_height):
            for dx in range(kernel_width):
                y0, x0 = dy * geometry.dilation[0], dx * geometry.dilation[1]
                rows = slice(y0, y0 + (height - 1) * geometry.strides[0] + 1, geometry.strides[0])
                cols = slice(x0, x0 + (width - 1) * geometry.strides[1] + 1, geometry.strides[1])
                out[:, f] += np.einsum("nchw,c->nhw", padded[:, channels, rows, cols], weights[f, :, dy, dx])
    return out
