"""Loops in TIR that measure the machine itself. Counts and sizes are arguments, so that each is compiled once.

chain:    x = (x ^ a) * a                    dependent integers: CYCLES_OF_LINK cycles a step on x86-64 and Arm
fma:      c[0:CHAINS] = c * a + b            enough chains at once to hide the latency
read:     out[t] = sum of x[t]               a thread's share of a buffer, in vectors, several sums at once
exchange: x[t] = pass; out[t] = sum of x[t + shift]    lines that the thread itself (shift 0) or another wrote last
launch:   a parallel loop with nothing in it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
import tvm
from tvm.script import tirx as T

#: sums or chains at once: latency (4 cycles) times throughput (2 a cycle), with some to spare; they fit 16 registers
CHAINS = 10
#: Cycles of an exclusive-or (1) and a multiplication (3) of 64-bit integers. Sources: the instruction tables of A. Fog;
#: Arm's Neoverse software optimization guides.
CYCLES_OF_LINK = 4


class Vectors(Protocol):
    """What loops are made for; a :class:`tvm_ext.core.machine.Machine` is one."""

    @property
    def lanes(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def features(self) -> Collection[str]: ...

    def as_dict(self) -> Mapping[str, Any]: ...

    def target(self) -> tvm.target.Target: ...


@T.macro
def _sum(x, first, passes, steps, lanes, out, t):  # type: ignore[no-untyped-def]
    """out[t] = sum of x[first:] as (steps, CHAINS, lanes), so many times."""
    sums = T.alloc_buffer((CHAINS, lanes), "float32", scope="local")
    for c in T.unroll(CHAINS):
        for v in T.vectorized(lanes):
            sums[c, v] = T.float32(0)
    for _ in T.serial(passes):
        for i in T.serial(steps):
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    sums[c, v] = sums[c, v] + x[first + (i * CHAINS + c) * lanes + v]
    for c in T.unroll(CHAINS):
        for v in T.vectorized(lanes):
            out[t, c, v] = sums[c, v]


def for_threads(kernel: tvm.tirx.PrimFunc, threads: int, name: str) -> tvm.tirx.PrimFunc:
    """The kernel under this name with its first argument, the number of threads, fixed: TVMScript is parsed once."""
    return kernel.specialize({kernel.params[0]: threads}).with_attr("global_symbol", name)


def read_kernel(lanes: int) -> tvm.tirx.PrimFunc:
    """read(threads, passes, start, steps, x, out): x[start:] as (threads, steps, CHAINS, lanes), summed over steps."""

    @T.prim_func(s_tir=True)
    def read(  # type: ignore[no-untyped-def]
        threads: T.int32, passes: T.int32, start: T.int32, steps: T.int32, x_of: T.handle, out_of: T.handle
    ):
        T.func_attr({"global_symbol": "read", "tirx.noalias": True})
        size = T.int32()
        x = T.match_buffer(x_of, (size,), "float32")
        out = T.match_buffer(out_of, (threads, CHAINS, lanes), "float32")
        for t in T.parallel(threads):
            _sum(x, start + t * steps * CHAINS * lanes, passes, steps, lanes, out, t)

    return read


def exchange_kernel(lanes: int, threads: int) -> tvm.tirx.PrimFunc:
    """exchange(passes, steps, shift, x, out): in each pass all threads write their share, then read one."""

    @T.prim_func(s_tir=True)
    def exchange(  # type: ignore[no-untyped-def]
        passes: T.int32, steps: T.int32, shift: T.int32, x_of: T.handle,
        out: T.Buffer((threads, CHAINS, lanes), "float32"),  # type: ignore[valid-type]
    ):  # fmt: skip
        T.func_attr({"global_symbol": "exchange", "tirx.noalias": True})
        size = T.int32()
        x = T.match_buffer(x_of, (size,), "float32")
        for p in T.serial(passes):
            for t in T.parallel(threads):
                for i in T.serial(steps):
                    for c in T.unroll(CHAINS):
                        for v in T.vectorized(lanes):
                            x[((t * steps + i) * CHAINS + c) * lanes + v] = T.Cast("float32", p + 1)
            for t in T.parallel(threads):
                _sum(x, (t + shift) % threads * steps * CHAINS * lanes, 1, steps, lanes, out, t)

    return exchange


def fma_kernel(lanes: int) -> tvm.tirx.PrimFunc:
    """fma(threads, steps, a, b, out): CHAINS multiply-adds of vectors a step and thread."""

    @T.prim_func(s_tir=True)
    def fma(  # type: ignore[no-untyped-def]
        threads: T.int32,
        steps: T.int32,
        a: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
        b: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
        out_of: T.handle,
    ):
        T.func_attr({"global_symbol": "fma", "tirx.noalias": True})
        out = T.match_buffer(out_of, (threads, CHAINS, lanes), "float32")
        for t in T.parallel(threads):
            chains = T.alloc_buffer((CHAINS, lanes), "float32", scope="local")
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    chains[c, v] = T.Cast("float32", c)
            for _ in T.serial(steps):
                for c in T.unroll(CHAINS):
                    for v in T.vectorized(lanes):
                        chains[c, v] = chains[c, v] * a[v] + b[v]
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    out[t, c, v] = chains[c, v]

    return fma


@T.prim_func(s_tir=True)
def chain_kernel(steps: T.int32, x: T.Buffer((2,), "uint64")):  # type: ignore[no-untyped-def,valid-type]
    """chain(steps, x): x[0] after so many steps with the factor x[1]."""
    T.func_attr({"global_symbol": "chain", "tirx.noalias": True})
    last = T.alloc_buffer((1,), "uint64", scope="local")
    last[0] = x[0]
    for _ in T.serial(steps):
        last[0] = T.bitwise_xor(last[0], x[1]) * x[1]
    x[0] = last[0]


def launch_kernel(threads: int) -> tvm.tirx.PrimFunc:
    """launch(count, out): so many parallel loops, each of which writes which one it was."""

    @T.prim_func(s_tir=True)
    def launch(count: T.int32, out: T.Buffer((threads, 64), "int32")):  # type: ignore[no-untyped-def,valid-type]
        T.func_attr({"global_symbol": "launch", "tirx.noalias": True})
        for n in T.serial(count):
            for t in T.parallel(threads):
                out[t, 0] = n

    return launch


def call_of_read(machine: Vectors, floats: int, passes: int = 1) -> tuple[Callable[[], Any], int]:
    """A call that reads a buffer of random floats, which repeat, checked to have read all; and the bytes it reads.

    Args:
        passes: how often it reads the buffer: more than once, one that caches hold.
    """
    lanes, threads = machine.lanes, machine.threads
    steps = -(-floats // (threads * CHAINS * lanes))
    x = np.resize(np.random.default_rng(0).random((1 << 20) - 3, dtype=np.float32), (threads, steps, CHAINS, lanes))
    argument, out = tvm.runtime.tensor(x.ravel()), tvm.runtime.tensor(np.zeros((threads, CHAINS, lanes), np.float32))
    function = tvm.compile(for_threads(read_kernel(lanes), threads, "read"), target=machine.target())["read"]
    function(passes, 0, steps, argument, out)
    np.testing.assert_allclose(out.numpy(), passes * x.sum(1, dtype=np.float64), rtol=1e-3)
    return lambda: function(passes, 0, steps, argument, out), passes * x.nbytes


def call_of_fma(machine: Vectors, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of `steps` multiply-adds a chain in all, shared among the machine's threads, checked against their closed
    form; and how many operations it does."""
    lanes, threads = machine.lanes, machine.threads
    function = tvm.compile(for_threads(fma_kernel(lanes), threads, "fma"), target=machine.target())["fma"]
    a, b = (tvm.runtime.tensor(np.full(lanes, v, np.float32)) for v in (0.5, 1.0))
    out = tvm.runtime.tensor(np.zeros((threads, CHAINS, lanes), np.float32))
    each = steps // threads
    function(each, a, b, out)
    np.testing.assert_array_equal(out.numpy(), 2.0)  # x = x / 2 + 1 ends at 2
    return lambda: function(each, a, b, out), 2.0 * each * threads * CHAINS * lanes


def round_minimum(call: Callable[[], Any], seconds: float) -> float:
    """Least time of a call within about `seconds`, after a fifth of it to warm up."""
    for_warming = time.perf_counter() + seconds / 5
    while time.perf_counter() < for_warming:
        call()
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now >= end:
            return best
