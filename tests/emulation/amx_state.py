"""The tile registers of one thread, and what each AMX instruction does to them, after Intel's manual.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (LDTILECFG to TILEZERO, TDPBF16PS, TDPBSSD and
its kin); volume 1, chapter 18. What faults on hardware raises :class:`Fault` here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

#: Palette 1: eight registers of sixteen rows of 64 bytes.
TILES, ROWS, ROW_BYTES = 8, 16, 64
_SMALLEST = np.float32(2.0**-126)


class Fault(Exception):
    """What the CPU answers with #UD or #GP."""


@dataclass
class TileState:
    """Configuration and contents of the tile registers.

    Attributes:
        shapes: (rows, bytes a row) of each register; None before LDTILECFG and after TILERELEASE.
        data: the registers' bytes, (8, 16, 64).
    """

    shapes: list[tuple[int, int]] | None = None
    data: np.ndarray = field(default_factory=lambda: np.zeros((TILES, ROWS, ROW_BYTES), np.uint8))

    def configure(self, config: bytes) -> None:
        """LDTILECFG: 64 bytes in memory."""
        palette, start_row = config[0], config[1]
        if palette == 0:
            self.release()
            return
        columns = np.frombuffer(config, "<u2", 16, 16)
        rows = np.frombuffer(config, np.uint8, 16, 48)
        if palette != 1 or any(config[2:16]) or any(columns[TILES:]) or any(rows[TILES:]):
            raise Fault(f"ldtilecfg: palette {palette}, or a reserved byte is not zero")
        half = any((rows[:TILES] == 0) != (columns[:TILES] == 0))
        if start_row or max(rows) > ROWS or max(columns) > ROW_BYTES or half:
            raise Fault(f"ldtilecfg: rows {rows[:TILES].tolist()} of {columns[:TILES].tolist()} bytes")
        self.shapes = [(int(r), int(c)) for r, c in zip(rows[:TILES], columns[:TILES], strict=True)]
        self.data[:] = 0

    def configuration(self) -> bytes:
        """STTILECFG: the 64 bytes that :meth:`configure` takes; zeros without a configuration."""
        out = np.zeros(64, np.uint8)
        if self.shapes is not None:
            out[0] = 1
            out[16:32].view("<u2")[:] = [c for _, c in self.shapes]
            out[48 : 48 + TILES] = [r for r, _ in self.shapes]
        return out.tobytes()

    def release(self) -> None:
        """TILERELEASE: the initial state."""
        self.shapes = None
        self.data[:] = 0

    def shape(self, tile: int) -> tuple[int, int]:
        """(rows, bytes a row) of a register that is in use."""
        if self.shapes is None or self.shapes[tile] == (0, 0):
            raise Fault(f"tile register {tile} is not configured")
        return self.shapes[tile]

    def zero(self, tile: int) -> None:
        """TILEZERO."""
        self.shape(tile)
        self.data[tile] = 0

    def load(self, tile: int, read: Callable[[int, int], bytes], address: int, stride: int) -> None:
        """TILELOADD: rows at `address`, `address + stride`, ...; the rest of the register becomes zero."""
        rows, columns = self.shape(tile)
        self.data[tile] = 0
        for row in range(rows):
            self.data[tile, row, :columns] = np.frombuffer(read(address + row * stride, columns), np.uint8)

    def store(self, tile: int, write: Callable[[int, bytes], None], address: int, stride: int) -> None:
        """TILESTORED."""
        rows, columns = self.shape(tile)
        for row in range(rows):
            write(address + row * stride, self.data[tile, row, :columns].tobytes())

    def _operands(self, target: int, left: int, right: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The bytes of (M, 4 N), (M, 4 K) and (K, 4 N) that a product takes."""
        (m, n), (m2, k), (k2, n2) = self.shape(target), self.shape(left), self.shape(right)
        if len({target, left, right}) < 3 or m != m2 or n != n2 or k != 4 * k2 or n % 4:
            raise Fault(f"tile product of registers {target}, {left}, {right}: {(m, n)} += {(m2, k)} x {(k2, n2)}")
        return self.data[target, :m, :n], self.data[left, :m, :k], self.data[right, :k2, :n]

    def dot_int8(self, target: int, left: int, right: int, signed: tuple[bool, bool]) -> None:
        """TDPB[SU][SU]D: sums of products of four bytes are added to 32-bit integers, which wrap."""
        c, a, b = self._operands(target, left, right)
        dtypes = [np.int8 if is_signed else np.uint8 for is_signed in signed]
        x = np.ascontiguousarray(a).view(dtypes[0]).astype(np.int64)
        y = np.ascontiguousarray(b).view(dtypes[1]).astype(np.int64)
        y = y.reshape(y.shape[0], -1, 4).transpose(0, 2, 1).reshape(x.shape[1], -1)
        total = np.ascontiguousarray(c).view(np.int32) + x @ y
        self._write(target, c.shape, total.astype(np.int64).astype(np.int32))

    def dot_bf16(self, target: int, left: int, right: int) -> None:
        """TDPBF16PS: even and odd elements are summed apart, in order of k, by FMA; then both are added to the target.

        Inputs and results below 2^-126 are zero; rounding is to nearest, ties to even.
        """
        c, a, b = self._operands(target, left, right)
        x, y = _widened(a), _widened(b)
        y = y.reshape(y.shape[0], -1, 2)
        x = x.reshape(x.shape[0], -1, 2)
        with np.errstate(all="ignore"):
            sums = _plain_sums(x, y) if _moderate(x) and _moderate(y) else _exact_sums(x, y)
            total = _flushed(np.ascontiguousarray(c).view(np.float32)) + _flushed(sums[..., 0] + sums[..., 1])
            self._write(target, c.shape, _flushed(total))

    def _write(self, tile: int, shape: tuple[int, int], value: np.ndarray) -> None:
        self.data[tile] = 0
        self.data[tile, : shape[0], : shape[1]] = np.ascontiguousarray(value).view(np.uint8)


def _widened(halves: np.ndarray) -> np.ndarray:
    """bfloat16, as bytes, in float32."""
    bits = np.ascontiguousarray(halves).view(np.uint16).astype(np.uint32) << 16
    return _flushed(bits.view(np.float32))


def _flushed(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < _SMALLEST, np.copysign(np.float32(0), values), values)


def _moderate(values: np.ndarray) -> bool:
    """Whether products of two such are exact, and their sums zero or above 2^-126: neither is then flushed."""
    magnitudes = np.abs(values[values != 0])
    return magnitudes.size == 0 or bool(magnitudes.min() > 2.0**-50 and magnitudes.max() < 2.0**50)


def _plain_sums(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sums over k of x: (M, K, 2) times y: (K, N, 2), in order: numpy adds along an outer axis one by one."""
    products: np.ndarray = x.transpose(1, 0, 2)[:, :, None] * y[:, None]
    return np.add.reduce(products, axis=0, dtype=np.float32)


def _exact_sums(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """:func:`_plain_sums` of any values."""
    sums = np.zeros((x.shape[0], y.shape[1], 2), np.float32)
    for k in range(x.shape[1]):
        sums = _fma(x[:, k, None, :], y[None, k], sums)
    return sums


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z, rounded once: the product of two bfloat16 is exact in float32, unless it leaves its range."""
    product = x * y
    exact = x.astype(np.float64) * y
    out = product + z
    if not np.array_equal(product.astype(np.float64), exact, equal_nan=True):
        out = np.where(product == exact, out, (exact + z).astype(np.float32))
    return _flushed(out)
