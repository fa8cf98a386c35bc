"""The plain twin of tile registers: loops over arrays that compute what the instructions do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.ops.scalars.expressions import dtype_of
from tvm_ext.rates.instructions import COLUMNS
from tvm_ext.schedules.amx import kernel, recipe
from tvm_ext.schedules.amx.tile_products import Element, Tiles, as_bits
from tvm_ext.schedules.steps.nests import own_buffer


@contextmanager
def plain_tiles() -> Iterator[None]:
    """Kernels that are made meanwhile have :class:`PlainTiles`, on any machine."""
    with mock.patch.object(kernel, "Tiles", PlainTiles), mock.patch.object(recipe, "_lacking", lambda *_: ""):
        yield


class PlainTiles(Tiles):
    """Registers in arrays, which runs anywhere; it adds in the same order. Bits are those of the instructions, but for
    bfloat16 numbers below 2^-126, which AMX takes for zero."""

    def begin(self) -> None:
        p, r = self.product, self.registers
        groups = ((r.pixels * r.outputs, p.result, 1), (r.pixels, p.left, p.group), (r.outputs, p.right, p.group))
        kinds = [(_computed(dtype), group) for count, dtype, group in groups for _ in range(count)]
        self._arrays = [
            own_buffer(f"tile{i}", (rows, row_bytes // 4 * group), dtype, "local")
            for i, ((rows, row_bytes), (dtype, group)) in enumerate(zip(r.shapes, kinds, strict=True))
        ]

    def end(self) -> None:
        pass

    def zero(self, tile: int) -> None:
        self._fill(tile, lambda m, n: tirx.const(0, self.product.result))

    def load(self, tile: int, element: Element, stride: int, streamed: bool = False) -> None:
        self._fill(tile, element)

    def load_row(self, tile: int, element: Element) -> None:
        def number(m: Any, n: Any) -> Any:
            low = [element(0, 4 * n + i).astype("int32") & tirx.const(255, "int32") for i in range(3)]
            high = element(0, 4 * n + 3).astype("int32")
            return low[0] + low[1] * 256 + low[2] * 65536 + high * 16777216

        self._fill(tile, number)

    def _fill(self, tile: int, value: Element) -> None:
        array = self._arrays[tile]
        rows, columns = (int(d) for d in array.shape)
        with T.serial(rows) as m, T.serial(columns) as n:
            T.buffer_store(array, _number(value(m, n)), [m, n])

    def store(self, tile: int, buffer: Any, index: Callable[[Any, Any], Sequence[Any]], stride: int) -> None:
        with T.serial(self.registers.rows) as m, T.serial(COLUMNS) as n:
            T.buffer_store(buffer, self._arrays[tile][m, n], list(index(m, n)))

    def prefetch(self, buffer: Any, index: Sequence[Any]) -> None:
        """Nothing: it changes no value."""

    def multiply(self, accumulator: int, left: int, right: int) -> None:
        """In the manual's order: of floats, the first and the second elements of all groups are summed apart."""
        p, (c, a, b) = self.product, (self._arrays[i] for i in (accumulator, left, right))
        apart = p.group if p.result == "float32" else 1
        sums = own_buffer("sums", (apart, COLUMNS), p.result, "local")
        with T.serial(self.registers.rows) as m:
            with T.serial(apart) as i, T.vectorized(COLUMNS) as n:
                T.buffer_store(sums, tirx.const(0, p.result), [i, n])
            with T.serial(self.registers.depth) as k, T.unroll(p.group) as i, T.serial(COLUMNS) as n:
                x, y = a[m, k * p.group + i].astype(p.result), b[k, n * p.group + i].astype(p.result)
                at = i if apart > 1 else 0
                T.buffer_store(sums, sums[at, n] + x * y, [at, n])
            with T.vectorized(COLUMNS) as n:
                total = sums[0, n] + sums[1, n] if apart > 1 else sums[0, n]
                T.buffer_store(c, c[m, n] + total, [m, n])


def _number(value: Any) -> Any:
    """Of a bfloat16, or its bits, the float32; any other number as it is."""
    bits = as_bits(value)
    return tirx.reinterpret("float32", bits.astype("uint32") << 16) if dtype_of(bits) == "uint16" else value


def _computed(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype
