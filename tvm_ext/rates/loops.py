"""Two loops in TIR that measure the machine itself: a read of a buffer, and fused multiply-adds in registers.

read: out[t] = sum of x[t]      a thread's share of a buffer, in vectors, several sums at once
fma:  out[t] = out[t] * a + b   over and over, enough chains at once to hide the latency
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T

from tvm_ext.core.machine import Machine

#: sums or chains at once: latency (4 cycles) times throughput (2 a cycle), with some to spare; they fit 16 registers
CHAINS = 10


def read_kernel(machine: Machine, floats: int, passes: int = 1) -> tuple[tvm.runtime.Module, tuple[int, ...]]:
    """A kernel that sums a buffer of (threads, steps, CHAINS, lanes) floats, so many times over, and that shape:
    `floats` or a few more."""
    threads, lanes = machine.threads, machine.lanes
    steps = -(-floats // (threads * CHAINS * lanes))

    @T.prim_func(s_tir=True)
    def read(  # type: ignore[no-untyped-def]
        x: T.Buffer((threads, steps, CHAINS, lanes), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((threads, CHAINS, lanes), "float32"),  # type: ignore[valid-type]
    ):
        T.func_attr({"global_symbol": "read", "tirx.noalias": True})
        for t in T.parallel(threads):
            sums = T.alloc_buffer((CHAINS, lanes), "float32", scope="local")
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    sums[c, v] = T.float32(0)
            for _ in T.serial(passes):
                for i in T.serial(steps):
                    for c in T.unroll(CHAINS):
                        for v in T.vectorized(lanes):
                            sums[c, v] = sums[c, v] + x[t, i, c, v]
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    out[t, c, v] = sums[c, v]

    return tvm.compile(read, target=machine.target()), (threads, steps, CHAINS, lanes)


def fma_kernel(machine: Machine, steps: int) -> tvm.runtime.Module:
    """A kernel of `steps` multiply-adds a chain in all, shared among the machine's threads."""
    threads, lanes = machine.threads, machine.lanes
    each = steps // threads

    @T.prim_func(s_tir=True)
    def fma(  # type: ignore[no-untyped-def]
        a: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
        b: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((threads, CHAINS, lanes), "float32"),  # type: ignore[valid-type]
    ):
        T.func_attr({"global_symbol": "fma", "tirx.noalias": True})
        for t in T.parallel(threads):
            chains = T.alloc_buffer((CHAINS, lanes), "float32", scope="local")
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    chains[c, v] = T.Cast("float32", c)
            for _ in T.serial(each):
                for c in T.unroll(CHAINS):
                    for v in T.vectorized(lanes):
                        chains[c, v] = chains[c, v] * a[v] + b[v]
            for c in T.unroll(CHAINS):
                for v in T.vectorized(lanes):
                    out[t, c, v] = chains[c, v]

    return tvm.compile(fma, target=machine.target())


def call_of_read(machine: Machine, floats: int, passes: int = 1) -> tuple[Callable[[], Any], int]:
    """A call that reads a buffer of random floats, checked to have read all of them, and the bytes it reads.

    Args:
        passes: how often it reads the buffer: more than once, one that caches hold.
    """
    module, shape = read_kernel(machine, floats, passes)
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    argument, out = tvm.runtime.tensor(x), tvm.runtime.tensor(np.zeros((shape[0], *shape[2:]), np.float32))
    function = module["read"]
    function(argument, out)
    np.testing.assert_allclose(out.numpy(), passes * x.astype(np.float64).sum(1), rtol=1e-3)
    return lambda: function(argument, out), passes * x.nbytes


def call_of_fma(machine: Machine, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of the multiply-adds, checked against their closed form, and how many operations it does."""
    function = fma_kernel(machine, steps)["fma"]
    vectors = (tvm.runtime.tensor(np.full(machine.lanes, v, np.float32)) for v in (0.5, 1.0))
    a, b = vectors
    out = tvm.runtime.tensor(np.zeros((machine.threads, CHAINS, machine.lanes), np.float32))
    function(a, b, out)
    np.testing.assert_array_equal(out.numpy(), 2.0)  # x = x / 2 + 1 ends at 2
    return lambda: function(a, b, out), 2.0 * steps // machine.threads * machine.threads * CHAINS * machine.lanes


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
