"""Calls of programs that are planned at bounds: each works on arrays of its own."""

import tracemalloc
from typing import Any

import numpy as np

from tvm_ext.runtime.sizes.sized_call import SizedCalls
from tvm_ext.runtime.sizes.symbols import Symbol
from tvm_ext.runtime.spec import Program

from ..programs import metadata


class Doubling:
    """A function that writes 2 x, and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def takes(self, output: int, memory: np.ndarray) -> bool:
        return True

    def call(self, arrays: Any, into: Any = None) -> list[np.ndarray]:
        x, *sizes = arrays
        self.calls.append((*x.shape, *(int(n) for n in sizes[0])))
        np.multiply(x, 2, out=into[0])
        return list(into)


def test_programs_of_one_function_work_on_arrays_of_their_own_bounds() -> None:
    n, s = Symbol("N", 1, 4), Symbol("S", 1, 6)
    shape: Any = ("N", "S")
    described = metadata(
        [("x", shape, "float32")], [("y", shape, "float32")], symbols=(n, s),
        programs=(Program("main", (), symbols=(n, s)), Program("main", (), fixed=(("S", 2),), symbols=(n,))),
    )  # fmt: skip
    general, fixed = Doubling(), Doubling()
    calls: Any = SizedCalls(described, [general, fixed])  # type: ignore[list-item]
    for rows, columns in ((3, 5), (3, 2), (1, 5), (2, 2)):
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        assert np.array_equal(calls([x], None)[0], 2 * x)
    assert general.calls == [(4, 6, 3, 5), (4, 6, 1, 5)] and fixed.calls == [(4, 2, 3), (4, 2, 2)]


class Halves(Doubling):
    """A function that writes half of an input of one size."""

    def takes(self, output: int, memory: np.ndarray) -> bool:
        return False

    def call(self, arrays: Any, into: Any = None) -> list[np.ndarray]:
        self.taken = arrays[1]
        return [arrays[1][:, :1] / 2]


def test_inputs_of_one_size_are_taken_where_they_lie() -> None:
    described = metadata(
        [("x", ("N",), "float32"), ("cache", (1024, 512), "float32")], [("y", (1024, 1), "float32")],
        symbols=(n := Symbol("N", 1, 4),), programs=(Program("main", (), symbols=(n,)),),
    )  # fmt: skip
    calls: Any = SizedCalls(described, [halves := Halves()])  # type: ignore[list-item]
    x, cache = np.ones(3, np.float32), np.ones((1024, 512), np.float32)
    tracemalloc.start()
    (y,) = calls([x, cache], None)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert halves.taken is cache and (y == 0.5).all()
    assert most < cache.nbytes / 8
