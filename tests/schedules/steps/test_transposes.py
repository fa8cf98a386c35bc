"""Transposes in registers: every element lands where numpy's does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.ir import IRModule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.machine import Machine
from tvm_ext.schedules.steps.transposes import deinterleave, interleave, joined, sums, transpose


def turned(x: np.ndarray, lanes: int, machine: Machine, turn: Callable[[list[Any]], list[Any]]) -> np.ndarray:
    """The vectors that `turn` makes of a flat array, one after the other."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        source, target = (T.arg(n, T.buffer(x.shape, str(x.dtype))) for n in ("x", "y"))
        vectors = [T.bind(source[tirx.Ramp(i, 1, lanes)]) for i in range(0, x.size, lanes)]
        for i, vector in enumerate(turn(vectors)):
            T.buffer_store(target, vector, [tirx.Ramp(i * lanes, 1, lanes)])
    kernel = tvm.compile(IRModule({"main": builder.get()}), target=machine.target()).jit()["main"]
    out = tvm.runtime.tensor(np.zeros_like(x))
    kernel(tvm.runtime.tensor(x), out)
    return out.numpy()


@pytest.mark.parametrize("n", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
def test_transpose(n: int, dtype: str, case_machine: Machine) -> None:
    x = np.arange(n * n).astype(dtype)
    out = turned(x, n, case_machine, lambda rows: transpose(rows, x.itemsize))
    assert np.array_equal(out.reshape(n, n), x.reshape(n, n).T)


@pytest.mark.parametrize(("n", "each"), [(2, 2), (4, 4), (8, 4), (16, 4), (16, 8), (16, 16)])
def test_sums_of_a_few_vectors_at_a_time(n: int, each: int, case_machine: Machine) -> None:
    x = np.arange(n * n).astype("float32")
    parts = lambda rows: [sums(rows[i : i + each], n, x.itemsize) for i in range(0, n, each)]  # noqa: E731
    out = turned(x, n, case_machine, lambda rows: [joined(parts(rows), n, x.itemsize)])
    assert np.array_equal(out[:n], x.reshape(n, n).sum(1))


@pytest.mark.parametrize("rows", [2, 3, 5, 7])
@pytest.mark.parametrize("lanes", [2, 8, 16])
def test_interleave_and_back(rows: int, lanes: int, case_machine: Machine) -> None:
    x = np.arange(rows * lanes).astype("float32")
    mixed = turned(x, lanes, case_machine, lambda vectors: interleave(vectors, lanes))
    assert np.array_equal(mixed, x.reshape(rows, lanes).T.ravel())
    assert np.array_equal(turned(mixed, lanes, case_machine, lambda vectors: deinterleave(vectors, lanes)), x)
