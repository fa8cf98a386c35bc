"""Weights of 2:4: of each four rows of B that follow one another a column keeps at most two values that are not 0.

A tile of B[k, n] is then the values that are kept, [depth, n] of int8, two rows for each four of B, and behind them in
which of its four rows each stands: two bits, four of them in a byte, the first in the lowest::

    column of B     0 7 0 -3 | 5 0 0 0        values  7 -3 | 5 0        places  1 3 | 0 1
"""

from __future__ import annotations

import numpy as np

#: Rows of B in a block, and values that each column keeps of it.
BLOCK, KEPT = 4, 2
_PLACES_PER_BYTE = 4


def kept_depth(k: int) -> int:
    """Rows of values of a tile of k rows of B."""
    return -(-k // BLOCK) * KEPT


def sparse_bytes(k: int, n: int) -> int:
    """Bytes of a tile of B[k, n]: values and places."""
    values = kept_depth(k) * n
    return values + -(-values // _PLACES_PER_BYTE)


def why_dense(b: np.ndarray) -> str:
    """Why matrices B [batches, k, n] do not go as 2:4; "" if they do.

    They do if each block of four rows has at most two values that are not 0 in each column, and that saves bytes.
    """
    _, k, n = b.shape
    if sparse_bytes(k, n) >= k * n:
        return f"values and places of {k} rows take no less than these"
    counts = np.count_nonzero(_blocks(b), axis=2)
    if counts.max() <= KEPT:
        return ""
    at = tuple(np.argwhere(counts > KEPT)[0])
    first = int(at[1]) * BLOCK
    return f"column {at[2]} has {counts[at]} weights in rows {first} to {min(k, first + BLOCK) - 1}"


def compress(b: np.ndarray) -> np.ndarray:
    """The tile of B[k, n] of int8, which is 2:4, as bytes [sparse_bytes(k, n)], int8."""
    blocks = _blocks(b[None])[0]
    places = np.sort(np.argsort(blocks == 0, axis=1, kind="stable")[:, :KEPT], axis=1)  # zeros last, then by row
    values = np.take_along_axis(blocks, places, axis=1).ravel()
    padded = np.pad(places.ravel().astype(np.uint8), (0, -places.size % _PLACES_PER_BYTE))
    packed = (padded.reshape(-1, _PLACES_PER_BYTE) << _shifts()).sum(axis=1, dtype=np.uint8)
    return np.concatenate([values, packed.view(np.int8)])


def kept(tile: np.ndarray, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Values, int8, and places, 0 to 3, both [kept_depth(k), n], of the bytes of a tile; any bytes are one."""
    shape = kept_depth(k), n
    values, packed = np.split(tile, [shape[0] * n])
    places = (packed.view(np.uint8)[:, None] >> _shifts()) & (BLOCK - 1)
    return values.reshape(shape), places.ravel()[: shape[0] * n].reshape(shape)


def expanded(values: np.ndarray, places: np.ndarray, k: int) -> np.ndarray:
    """B[k, n], int16, of :func:`kept`; two values of one place add up, as their products do."""
    depth, n = values.shape
    b = np.zeros((depth // KEPT, BLOCK, n), np.int16)
    pairs = (depth // KEPT, KEPT, n)
    for value, place in zip(*(np.moveaxis(part.reshape(pairs), 1, 0) for part in (values, places)), strict=True):
        at = place[:, None].astype(np.intp)
        np.put_along_axis(b, at, np.take_along_axis(b, at, axis=1) + value[:, None], axis=1)
    return b.reshape(-1, n)[:k]


def _blocks(b: np.ndarray) -> np.ndarray:
    """Matrices [batches, k, n] as [batches, blocks, 4, n], zeros behind the last row."""
    batches, k, n = b.shape
    return np.pad(b, ((0, 0), (0, -k % BLOCK), (0, 0))).reshape(batches, -1, BLOCK, n)


def _shifts() -> np.ndarray:
    return np.arange(0, 2 * _PLACES_PER_BYTE, 2, dtype=np.uint8)
