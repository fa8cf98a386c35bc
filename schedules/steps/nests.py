"""Loops and buffers of kernels that are built with their loops in place (:func:`.arguments.building`)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


def own_buffer(name: str, shape: Sequence[int], dtype: str = "float32", scope: str = "global") -> Any:
    """A buffer that the kernel needs for itself."""
    buffer = T.alloc_buffer(tuple(shape), dtype, scope=scope)
    IRBuilder.name(name, buffer)
    return buffer


@contextmanager
def nested(*loops: Any) -> Iterator[list[Any]]:
    """The variables of loops, within all of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(loop) for loop in loops]


def unrolled(*extents: int) -> Any:
    """The variables of unrolled loops, within all of them."""
    return nested(*map(T.unroll, extents))


@contextmanager
def vector(count: int) -> Iterator[Any]:
    """A vectorized loop; none for one element."""
    if count == 1:
        yield 0
    else:
        with T.vectorized(count) as j:
            yield j


@contextmanager
def where(conditions: Sequence[Any]) -> Iterator[None]:
    """Under all conditions, if there are any."""
    if not conditions:
        yield
    else:
        with T.If(tirx.all(*conditions)), T.Then():
            yield


def vectors_of(width: int, lanes: int) -> Iterator[Any]:
    """Elements of a row: once in loops over its whole vectors, once in that over what is left."""
    whole, left = divmod(width, lanes)
    if whole:
        with T.serial(whole) as e, T.vectorized(lanes) as j:
            yield e * lanes + j
    if left:
        with T.vectorized(left) as j:
            yield whole * lanes + j


def tiles(low: Any, high: Any, size: int) -> Iterator[tuple[Any, int]]:
    """(start, size) of tiles between two places, within loops over the whole ones, and over what is left: one tile, or
    if it is not known how much that is, tiles of 1."""
    count = high - low
    if isinstance(count, int):
        whole, left = divmod(count, size)
        if whole:
            with T.serial(whole) as tile:
                yield low + tile * size, size
        if left:
            yield low + whole * size, left
        return
    with T.serial(count // size) as tile:
        yield low + tile * size, size
    if size > 1:
        with T.serial(count % size) as tile:
            yield low + count // size * size + tile, 1
