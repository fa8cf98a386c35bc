"""Scheduling steps that several recipes take."""

import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize, Schedule

from tvm_ext.core.cost.sharing import Sharing


def parallel_units(sch: Schedule, loops: Sequence[Any], threads: int) -> Any:
    """Share loops, whose product divides by the threads, among threads; return the loop over the units of one thread.

    for a, b in grid(A, B)  ->  for t in parallel(threads): for u in range(A * B / threads)
    """
    inner = parallel_loops(sch, loops, threads)
    return sch.fuse(*inner) if len(inner) > 1 else inner[0]


def parallel_loops(sch: Schedule, loops: Sequence[Any], threads: int) -> list[Any]:
    """Share loops among threads, and leave what remains of each a loop of its own.

    for a, b in grid(A, B)  ->  for t in parallel(threads): for a, b in grid(A / threads, B)

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
    return inner


def parallel_rows(sch: Schedule, loops: Sequence[Any], threads: int) -> Any:
    """Like :func:`parallel_units` for loops of any extents: the last thread may do less.

    Loops whose product divides are shared one by one: an index of a fused loop that is cut across one of them is no
    affine one, and what is computed inside cannot be vectorized then.
    """
    rows = math.prod(int(sch.get(loop).extent) for loop in loops)
    count = Sharing.of_rows(rows, threads).threads
    if count > 1 and len(loops) > 1 and rows % count == 0:
        return parallel_units(sch, loops, count)
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if count == 1:
        return fused
    outer, inner = sch.split(fused, [count, None])
    sch.parallel(outer)
    return inner


def parallel_largest(sch: Schedule, loops: Sequence[Any], extents: Sequence[int], threads: int) -> None:
    """Share the longest of nested loops, whose extents are known at run time, among threads.

    for n, s in grid(N, S)  ->  for t in parallel(2): for n, s in grid(N, (S + 1) // 2) where it is within S

    As in :func:`parallel_loops`, no pool takes more threads; loops of a run-time extent are not fused, which would
    divide in every step. :func:`bounded` makes a bound of the condition, once everything is scheduled.

    Args:
        extents: of each loop the largest.
    """
    place = max(range(len(loops)), key=lambda index: extents[index])
    outer, _ = sch.split(loops[place], [Sharing.of_rows(extents[place], threads).threads, None])
    sch.reorder(outer, *loops[:place])
    sch.parallel(outer)


def bounded(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled kernel whose loops end where their blocks' conditions do, so that LLVM vectorizes them.

    for s in range(c): y[t * c + s] = ... where t * c + s < S   ->   for s in range(min(c, S - t * c)): ...
    """
    threads: set[Any] = set()
    rest: dict[Any, Any] = {}

    def look(node: tirx.For) -> None:
        if int(node.kind) == int(tirx.ForKind.PARALLEL):
            threads.add(node.loop_var)

    def collect(realize: SBlockRealize) -> SBlockRealize:
        match realize.predicate:
            case tirx.LT(a=tirx.Add(a=tirx.Mul(a=thread) as start, b=tirx.Var() as var), b=end) if thread in threads:
                rest[var] = end - start
                return SBlockRealize(realize.iter_values, True, realize.block)
        return realize

    def loop(node: tirx.For) -> tirx.For:
        if node.loop_var not in rest:
            return node
        extent = tirx.max(tirx.min(node.extent, rest[node.loop_var]), tirx.const(0, node.extent.ty.dtype))
        return tirx.For(node.loop_var, node.min, extent, node.kind, node.body)

    tvm_ffi.structural_walk(function.body, (tirx.For, look))
    open_loops = tvm_ffi.structural_map(function.body, (SBlockRealize, collect))
    return function.with_body(tvm_ffi.structural_map(open_loops, (tirx.For, loop)))


#: Most that a thread may do beyond its even share of an image's rows.
_UNEVEN = 1.1


def parallel_image(sch: Schedule, n: Any, c: Any, y: Any, threads: int) -> None:
    """Share images among threads: whole images, else rows of each, else blocks of channels.

    for n, c, y in grid(N, C, H)  ->  for t in parallel(threads): for n, c, y in grid(N, C, H / threads)

    Kernels that follow one another so leave each thread the rows that it wrote itself, which lie in its own cache:
    rows that another core wrote come at a tenth of the speed. Convolutions of large images are shared alike
    (:func:`..blocked.kernel.shares_pixels`).
    """
    images, rows = int(sch.get(n).extent), int(sch.get(y).extent)
    if not _by_image_rows(images, rows, threads):
        parallel_rows(sch, [n, c, y], threads)
        return
    outer, y = sch.split(y, [Sharing.of_rows(rows, threads).threads, None])
    sch.reorder(outer, n, c, y)
    sch.parallel(outer)


def image_sharing(images: int, blocks: int, rows: int, threads: int) -> Sharing:
    """How :func:`parallel_image` shares the rows of all blocks of channels."""
    if not _by_image_rows(images, rows, threads):
        return Sharing.of_rows(images * blocks * rows, threads)
    each = Sharing.of_rows(rows, threads)
    return Sharing(each.threads, images * blocks * each.real, images * blocks * each.busiest)


def _by_image_rows(images: int, rows: int, threads: int) -> bool:
    """Whether each thread has rows of every image, in all blocks of channels."""
    return threads > 1 and images % threads > 0 and -(-rows // threads) * threads <= _UNEVEN * rows


def unroll_and_vectorize(sch: Schedule, unrolled: Sequence[Any], vectorized: Any) -> None:
    """Unroll the first loops, vectorize the last one."""
    for loop in unrolled:
        sch.unroll(loop)
    sch.vectorize(vectorized)


def flat_map(sch: Schedule, block: Any, threads: int, lanes: int) -> None:
    """A block without reduction: loops that walk all operands alike are one, then threads, then vectors.

    for n, c, h, w: y[n, c, h, w] = x[n, c, h, w] + b[c]
    ->  for nc in parallel: for hw in range(H * W / 16): for v in vectorized(16): ...
    """
    *rows, last = _merged(sch, block, lanes)
    rows = [row for row in rows if int(sch.get(row).extent) > 1]
    if rows and math.prod(int(sch.get(row).extent) for row in rows) >= threads:
        parallel_rows(sch, rows, threads)
        threads = 1
    vectorize_all(sch, last, lanes, threads)


def _merged(sch: Schedule, block: Any, lanes: int) -> list[Any]:
    """The loops of a block; neighbours are fused where every operand walks both alike.

    TVM finds that an index of a fused loop is a plain one if two loops are fused, or if all have whole vectors.
    """
    loops = sch.get_loops(block) or [sch.add_unit_loop(block)]
    sizes = [int(sch.get(loop).extent) for loop in loops]
    iterators = [v.var for v in sch.get(block).iter_vars]
    regions = [*sch.get(block).reads, *sch.get(block).writes]
    out: list[Any] = []
    merged, inner, fused = loops[-1], len(loops) - 1, 1
    most = len(loops) if next((s for s in reversed(sizes) if s > 1), 1) % lanes == 0 else 2
    for i in range(len(loops) - 2, -1, -1):
        unit = 1 in (sizes[i], sizes[inner])
        if unit or (fused < most and all(_alike(r, iterators[i], iterators[inner], sizes[inner]) for r in regions)):
            merged = sch.fuse(loops[i], merged)
            fused += 0 if unit else 1
        else:
            out.insert(0, merged)
            merged, fused = loops[i], 1
        inner = i if sizes[i] > 1 else inner
    return [merged, *out]


def _alike(region: Any, outer: Any, inner: Any, size: int) -> bool:
    """Whether a buffer is walked by two iterators as if they were one: they are neighbouring dimensions, and the inner
    one, of `size`, is whole; or they are none of its dimensions."""
    used = [set(tirx.analysis.undefined_vars(r.min)) for r in region.region]
    places = [k for k, names in enumerate(used) if names & {outer, inner}]
    if not places:
        return True
    first, last = places[0], places[-1]
    exact = len(places) == 2 and region.region[first].min.same_as(outer) and region.region[last].min.same_as(inner)
    shape = [int(d) for d in region.source.shape]
    return exact and shape[last] == size and all(d == 1 for d in shape[first + 1 : last])


def vectorize_all(sch: Schedule, loop: Any, lanes: int, threads: int = 1) -> None:
    """A loop of any length in vectors; what is left is one vector of odd width, which LLVM rounds up.

    for i in range(100)  ->  for i in range(6): for v in vectorized(16); for v in vectorized(96, 100)
    """
    extent = int(sch.get(loop).extent)
    whole = extent - extent % lanes
    if extent <= lanes:
        sch.vectorize(loop)
        return
    if whole < extent:
        loop, rest = sch.loop_partition(loop, [whole, None])
        sch.vectorize(rest)
    vectors, lane = sch.split(loop, [None, lanes])
    sch.vectorize(lane)
    parallel_rows(sch, [vectors], threads)
