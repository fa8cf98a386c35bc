"""Loops in TIR that measure the machine itself. Counts and sizes are arguments, so that each is compiled once.

chain:    x = (x ^ a) * a                    dependent integers: CYCLES_OF_LINK cycles a step on x86-64 and Arm
fma:      c[0:CHAINS] = c * a + b            enough chains at once to hide the latency
read:     out[t] = sum of x[t]               a thread's share of a buffer, in vectors, several sums at once
exchange: x[t] = pass; out[t] = sum of x[t + shift]    lines that the thread itself (shift 0) or another wrote last
launch:   a parallel loop with nothing in it
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..runtime.memory.arrays import mapped_empty, to_tensor

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


def declared(name: str, counts: Sequence[str], buffers: Sequence[tuple[tuple[Any, ...], str]]) -> list[Any]:
    """Parameters of the function that is being built: numbers of int32, then buffers by shape and dtype."""
    T.func_name(name)
    T.func_attr({"global_symbol": name, "tirx.noalias": True})
    numbers = [T.arg(count, tirx.Var(count, "int32")) for count in counts]
    return [*numbers, *(T.arg(f"p{i}", T.buffer(*of)) for i, of in enumerate(buffers))]


@contextlib.contextmanager
def _chains(lanes: int, first: Any, out: Any, t: Any) -> Iterator[Callable[[Callable[[Any, Any], Any]], None]]:
    """CHAINS vectors in registers, which are out[t] at the end.

    Args:
        first: number of a chain -> what each of its lanes begins with.

    Yields:
        Replaces each vector: takes a function of the vector, or of its lanes, and the number of the chain.
    """
    chains, index, vector = T.alloc_buffer((CHAINS, lanes), "float32", scope="local"), _lanes(0, lanes), _type(lanes)

    def step(value: Callable[[Any, Any], Any]) -> None:
        with T.unroll(CHAINS) as c:
            T.buffer_store(chains, value(chains.vload([c, 0], vector), c), [c, index])

    step(lambda _, c: _spread(first(c), lanes))
    yield step
    with T.unroll(CHAINS) as c:
        T.buffer_store(out, chains.vload([c, 0], vector), [t, c, index])


def _sum(x: Any, first: Any, passes: Any, steps: Any, lanes: int, out: Any, t: Any) -> None:
    """out[t] = sum of x[first:] as (steps, CHAINS, lanes), so many times."""
    with _chains(lanes, lambda c: tirx.const(0, "float32"), out, t) as step, T.serial(passes), T.serial(steps) as i:
        step(lambda total, c: total + x.vload([first + (i * CHAINS + c) * lanes], _type(lanes)))


def read_kernel(lanes: int, threads: int, name: str) -> tirx.PrimFunc:
    """NAME(passes, start, steps, x, out): x[start:] as (threads, steps, CHAINS, lanes), summed over steps."""
    x_of, out_of = ((tirx.Var("size", "int32"),), "float32"), ((threads, CHAINS, lanes), "float32")
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        passes, start, steps, x, out = declared(name, ["passes", "start", "steps"], [x_of, out_of])
        with T.sblock("root"), T.parallel(threads) as t:
            _sum(x, start + t * steps * CHAINS * lanes, passes, steps, lanes, out, t)
    return builder.get()


def exchange_kernel(lanes: int, threads: int) -> tirx.PrimFunc:
    """exchange(passes, steps, shift, x, out): in each pass all threads write their share, then read one."""
    x_of, out_of = ((tirx.Var("size", "int32"),), "float32"), ((threads, CHAINS, lanes), "float32")
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        passes, steps, shift, x, out = declared("exchange", ["passes", "steps", "shift"], [x_of, out_of])
        with T.sblock("root"), T.serial(passes) as p:
            with T.parallel(threads) as t, T.serial(steps) as i, T.unroll(CHAINS) as c:
                place = ((t * steps + i) * CHAINS + c) * lanes
                T.buffer_store(x, _spread((p + 1).astype("float32"), lanes), [_lanes(place, lanes)])
            with T.parallel(threads) as t:
                _sum(x, (t + shift) % threads * steps * CHAINS * lanes, 1, steps, lanes, out, t)
    return builder.get()


def fma_kernel(lanes: int, threads: int, name: str) -> tirx.PrimFunc:
    """NAME(steps, a, b, out): CHAINS multiply-adds of vectors a step and thread."""
    operand, out_of = ((lanes,), "float32"), ((threads, CHAINS, lanes), "float32")
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        steps, a, b, out = declared(name, ["steps"], [operand, operand, out_of])
        root, each = T.sblock("root"), T.parallel(threads)
        with root, each as t, _chains(lanes, lambda c: c.astype("float32"), out, t) as step, T.serial(steps):
            step(lambda last, c: last * a.vload([0], _type(lanes)) + b.vload([0], _type(lanes)))
    return builder.get()


def chain_kernel() -> tirx.PrimFunc:
    """chain(steps, x): x[0] after so many steps with the factor x[1], uint64."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        steps, x = declared("chain", ["steps"], [((2,), "uint64")])
        with T.sblock("root"):
            last = T.alloc_buffer((1,), "uint64", scope="local")
            T.buffer_store(last, x[0], [0])
            with T.serial(steps):
                T.buffer_store(last, (last[0] ^ x[1]) * x[1], [0])
            T.buffer_store(x, last[0], [0])
    return builder.get()


def launch_kernel(threads: int) -> tirx.PrimFunc:
    """launch(count, out): so many parallel loops, each of which writes which one it was."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        count, out = declared("launch", ["count"], [((threads, 64), "int32")])
        with T.sblock("root"), T.serial(count) as n, T.parallel(threads) as t:
            T.buffer_store(out, n, [t, 0])
    return builder.get()


def _type(lanes: int) -> str:
    return f"float32x{lanes}" if lanes > 1 else "float32"


def _spread(value: Any, lanes: int) -> Any:
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def _lanes(first: Any, lanes: int) -> Any:
    return tirx.Ramp(first, 1, lanes) if lanes > 1 else first


def call_of_read(machine: Vectors, floats: int, passes: int = 1) -> tuple[Callable[[], Any], int]:
    """A call that reads a buffer of random floats, which repeat, checked to have read all; and the bytes it reads.

    Args:
        passes: how often it reads the buffer: more than once, one that caches hold.
    """
    lanes, threads = machine.lanes, machine.threads
    steps = -(-floats // (threads * CHAINS * lanes))
    count = threads * steps * CHAINS * lanes
    pattern = np.random.default_rng(0).random(min((1 << 20) - 3, count), dtype=np.float32)
    x = mapped_empty(4 * count).view(np.float32)
    for start in range(0, count, pattern.size):
        x[start : start + pattern.size] = pattern[: count - start]
    argument, out = to_tensor(x), tvm.runtime.tensor(np.zeros((threads, CHAINS, lanes), np.float32))
    function = tvm.compile(read_kernel(lanes, threads, "read"), target=machine.target())["read"]
    function(passes, 0, steps, argument, out)
    whole, rest = divmod(count, pattern.size)
    total = whole * pattern.sum(dtype=np.float64) + pattern[:rest].sum(dtype=np.float64)
    np.testing.assert_allclose(out.numpy().sum(dtype=np.float64), passes * total, rtol=1e-3)
    return lambda: function(passes, 0, steps, argument, out), passes * x.nbytes


def call_of_fma(machine: Vectors, steps: int) -> tuple[Callable[[], Any], float]:
    """A call of `steps` multiply-adds a chain in all, shared among the machine's threads, checked against their closed
    form; and how many operations it does."""
    lanes, threads = machine.lanes, machine.threads
    function = tvm.compile(fma_kernel(lanes, threads, "fma"), target=machine.target())["fma"]
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
