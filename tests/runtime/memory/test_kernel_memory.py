"""Looking into the memory of kernels while they run."""

from collections.abc import Sequence

import numpy as np
import pytest
import tvm_ffi

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.runtime.memory.kernel_memory import array_over
from tvm_ext.runtime.model import CompiledModel

W = random(7, 5)


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    nodes = [node("MatMul", "x w", "h"), node("Softmax", "h", "y", axis=-1)]
    proto = model(nodes, [value("x", (3, 7))], [value("y", (3, 5))], {"w": W})
    return tvm_ext.compile(proto, cache=False, threads=1, records=None)


def test_an_array_over_a_tensor_is_its_memory() -> None:
    for dtype in ("float32", "int64", "bool", "int8"):
        array = np.ones((2, 3), dtype)
        over = array_over(tvm_ffi.from_dlpack(array))
        assert over.dtype == array.dtype and np.shares_memory(over, array) and over.flags.writeable
        over[1, 2] = 0
        assert not array[1, 2]
    assert array_over(tvm_ffi.from_dlpack(np.zeros((2, 0), "float32"))).shape == (2, 0)


def test_kernels_are_seen_with_their_operands_and_results(compiled: CompiledModel) -> None:
    seen: list[tuple[str, bool, list[np.ndarray]]] = []

    def inspect(name: str, before: bool, arrays: Sequence[np.ndarray]) -> None:
        seen.append((name, before, [array.copy() for array in arrays]))

    x = random(3, 7, seed=1)
    y = compiled.run_inspected({"x": x}, inspect)["y"]
    assert [before for _, before, _ in seen] == [True, False, True, False]
    assert np.array_equal(seen[0][2][0], x) and np.allclose(seen[1][2][-1], x @ W, atol=1e-5)
    assert np.array_equal(seen[3][2][-1], y) and np.array_equal(y, compiled.run({"x": x})["y"])


def test_what_is_written_to_a_result_is_read_by_the_next_kernel(compiled: CompiledModel) -> None:
    calls = []

    def inspect(name: str, before: bool, arrays: Sequence[np.ndarray]) -> None:
        calls.append(name)
        if not before and len(calls) == 2:
            arrays[-1][...] = 0.0

    y = compiled.run_inspected({"x": random(3, 7)}, inspect)["y"]
    assert np.allclose(y, 0.2)
