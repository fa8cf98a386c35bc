"""Calls of programs of any size: what they refuse, take as it is, and keep."""

import gc
import itertools
import os
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import random, text_model
from tvm_ext.core.errors import InputError, ModelError
from tvm_ext.runtime.model import CompiledModel

MODEL = text_model("""
    rows (float[N, S, 8] x, float[N, S] mask) => (float[A] y, float[N, S, 8] z) {
      last = Constant <value_ints = [2]> ()
      m = Unsqueeze (mask, last)
      z = Mul (x, m)
      flat = Constant <value_ints = [-1]> ()
      y = Reshape (z, flat)
    }
""")
X, MASK = random(4, 60, 8), random(4, 60)


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    bounds = {"N": (1, 4), "S": (2, 60)}
    return tvm_ext.compile(MODEL, dims=bounds, cache=False, records=None, threads=2)


def check(compiled: CompiledModel, x: np.ndarray, mask: np.ndarray) -> None:
    outputs = compiled.run({"x": x, "mask": mask})
    np.testing.assert_array_equal(outputs["z"], x * mask[..., None])
    assert np.array_equal(outputs["z"].ravel(), outputs["y"])


#: Inputs, and what the message has in it: the tensor, the dimension, what it is and what it can be.
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "sizes that contradict": ({"mask": MASK[:2, :6]}, ("'mask'", "dimension 1", "S is 6", "5 in", "'x'")),
    "no element": ({"x": X[:2, :0], "mask": MASK[:2, :0]}, ("'x'", "dimension 1", "S is 0", "2 to 60")),
    "too few": ({"x": X[:2, :1], "mask": MASK[:2, :1]}, ("'x'", "dimension 1", "S is 1", "2 to 60")),
    "too many": ({"x": random(5, 5, 8), "mask": random(5, 5)}, ("'x'", "dimension 0", "N is 5", "1 to 4")),
    "another rank": ({"mask": MASK[:2, :5, None]}, ("'mask'", "3 dimensions", "float32[N, S]")),
    "a scalar": ({"mask": np.float32(1)}, ("'mask'", "0 dimensions", "float32[N, S]")),
    "another number": ({"x": X[:2, :5, :7]}, ("'x'", "dimension 2 is 7", "8")),
    "another dtype": ({"mask": MASK[:2, :5].astype("float64")}, ("'mask'", "float64", "float32")),
    "nothing": ({"mask": None}, ("'mask'", "None")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(compiled: CompiledModel, case: str) -> None:
    inputs, told = REFUSED[case]
    with pytest.raises(InputError) as error:
        compiled.run({"x": X[:2, :5], "mask": MASK[:2, :5], **inputs})
    assert not [part for part in told if part not in str(error.value)], str(error.value)
    check(compiled, X[:2, :5], MASK[:2, :5])


def test_arrays_that_lie_elsewhere_or_otherwise_are_taken(compiled: CompiledModel) -> None:
    check(compiled, np.asfortranarray(X)[::-2, 5:40:3], MASK.T[:12, 1:3].T)
    check(compiled, X[:3, 7:20].astype(">f4"), np.broadcast_to(MASK[0, :1], (3, 13)))


def test_bounds_whose_product_no_index_holds_are_refused() -> None:
    for most in (100_000, (1 << 31) - 1):
        with pytest.raises(ModelError, match=r"'x' has shape .*2147483647 elements"):
            tvm_ext.compile(MODEL, dims={"N": (1, most), "S": (1, most)}, cache=False, records=None)


def test_random_sizes_keep_no_memory_and_start_no_thread(compiled: CompiledModel) -> None:
    for n, s in itertools.product(range(1, 5), range(2, 61)):
        check(compiled, X[:n, :s], MASK[:n, :s])
    sizes = np.random.default_rng(0).integers((1, 2), (5, 61), (10_000, 2)).tolist()
    threads = set(os.listdir("/proc/self/task"))
    tracemalloc.start()
    compiled.run({"x": X, "mask": MASK})
    taken, _ = tracemalloc.get_traced_memory()
    for n, s in sizes:
        compiled.run({"x": X[:n, :s], "mask": MASK[:n, :s]})
    gc.collect()
    later, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert later - taken < len(sizes) * sys.getsizeof(object()), "not even the smallest object a call is kept"
    assert set(os.listdir("/proc/self/task")) <= threads
    check(compiled, X, MASK)
