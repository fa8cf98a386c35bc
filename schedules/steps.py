"""Scheduling steps that several recipes take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine

#: Below this many seconds of work on one thread, waking the others costs more than it saves.
SERIAL_SECONDS = 15e-6


def parallel_units(sch: Schedule, loops: Sequence[Any], threads: int) -> Any:
    """Share loops, whose product divides by the threads, among threads; return the loop over the units of one thread.

    for a, b in grid(A, B)  ->  for t in parallel(threads): for u in range(A * B / threads)

    Each loop gives as large a factor of the thread count as divides it, so that every index stays an affine one. The
    thread loop has at most `threads` iterations whatever pool it runs on: an artifact keeps to its number of threads.
    Fewer are used if the product does not divide: then there are fewer units than threads.
    """
    left, outer, inner = threads, [], []
    for loop in loops:
        share = math.gcd(int(sch.get(loop).extent), left)
        left //= share
        if share > 1:
            first, loop = sch.split(loop, [share, None])
            outer.append(first)
        inner.append(loop)
    if outer:
        sch.reorder(*outer, *inner)
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
    return sch.fuse(*inner) if len(inner) > 1 else inner[0]


def parallel_rows(sch: Schedule, loops: Sequence[Any], threads: int) -> Any:
    """Like :func:`parallel_units` for blocks with nothing computed inside: the last thread may do less."""
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    count = min(int(sch.get(fused).extent), threads)
    if count == 1:
        return fused
    outer, inner = sch.split(fused, [count, None])
    sch.parallel(outer)
    return inner


def unroll_and_vectorize(sch: Schedule, unrolled: Sequence[Any], vectorized: Any) -> None:
    """Unroll the first loops, vectorize the last one."""
    for loop in unrolled:
        sch.unroll(loop)
    sch.vectorize(vectorized)


def thread_choices(operations: float, machine: Machine) -> list[int]:
    """All threads if `operations` f32 vector operations are worth waking them, else one."""
    seconds = operations / machine.lanes / 1.5e9
    return [machine.threads if seconds > SERIAL_SECONDS else 1]


def flat_map(sch: Schedule, block: Any, threads: int, lanes: int) -> None:
    """A block without reduction over one fused loop: threads, then vectors; the remainder is scalar.

    for i in range(N)  ->  for t in parallel(threads): for u in ...: for v in vectorized(lanes)
    """
    loops = sch.get_loops(block)
    if not loops:
        return
    last = int(sch.get(loops[-1]).extent)
    if last % lanes == 0:
        *outer, inner = loops
        if last > lanes:
            split, inner = sch.split(inner, [None, lanes])
            outer.append(split)
    else:
        fused = sch.fuse(*loops)
        extent = int(sch.get(fused).extent)
        if extent % lanes:
            parallel_rows(sch, [fused], threads)
            return
        whole, inner = sch.split(fused, [None, lanes])
        outer = [whole]
    sch.vectorize(inner)
    if outer:
        parallel_rows(sch, outer, threads)
