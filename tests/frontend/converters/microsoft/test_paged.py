"""PagedAttention, which onnxruntime has no CPU kernel of, against its GroupQueryAttention, a sequence at a time."""

from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.frontend.graphs import imported
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import InputError, UnsupportedError

from .cases import built, case, floats, rng_of

#: Heads, heads of keys, size, rows of a page, pages of a sequence at most, pages of the cache.
N, G, D, R, P, PAGES = 4, 2, 16, 16, 3, 9


def batch(rng: np.random.Generator, past: list[int], new: list[int]) -> list[Any]:
    """Packed operands of all tokens, caches in pages, starts, lengths before, and a table of pages in any order."""
    packed = floats(rng, sum(new), (N + 2 * G) * D)
    caches = [floats(rng, PAGES, R, G, D) for _ in range(2)]
    table = rng.permutation(PAGES)[: len(past) * P].reshape(-1, P)
    starts = np.cumsum([0, *new])
    return [packed, None, None, *caches, *map(np.int32, (starts, past, table))]


def of_sequence(operands: list[Any], b: int, tables: list[Any], more: dict[str, Any]) -> list[np.ndarray]:
    """Outputs of onnxruntime's GroupQueryAttention for the tokens of a sequence; caches as (rows, heads, size)."""
    packed, _, _, keys, values, starts, past, table = operands
    new = packed[None, starts[b] : starts[b + 1]]
    total = int(past[b]) + new.shape[1]
    caches = [c[table[b]].reshape(1, P * R, G, D).transpose(0, 2, 1, 3).copy() for c in (keys, values)]
    operands = [new, None, None, *caches, np.int32([total - 1]), np.int32(total), *tables]
    node = case(*operands, num_heads=N, kv_num_heads=G, outputs=3, **more)
    y, *present = onnxruntime_outputs(*built("GroupQueryAttention", [node], "com.microsoft")).values()
    return [y[0], *(cache[0, :, :total].transpose(1, 0, 2) for cache in present)]


@pytest.mark.parametrize(
    ("past", "new", "more"),
    [
        ([0, 17, 30], [5, 1, 2], {"do_rotary": 1}),
        ([9, 0, 47], [1, 0, 1], {"do_rotary": 1, "rotary_interleaved": 1, "scale": 0.3}),
        ([0, 40], [48, 1], {"local_window_size": 9}),
        ([3], [1], {"softcap": 0.7}),
    ],
)
def test_tokens_of_several_sequences(past: list[int], new: list[int], more: dict[str, Any]) -> None:
    rng = rng_of(1, *past, *new)
    operands = batch(rng, past, new)
    tables = [floats(rng, P * R, D // 2) for _ in range(2)] if "do_rotary" in more else []
    node = case(*operands, *tables, num_heads=N, kv_num_heads=G, outputs=3, **more)
    proto, feeds = built("PagedAttention", [node], "com.microsoft", "float32")
    results = tvm_ext.compile(proto, cache=False, threads=2).run(feeds)
    y, *caches = results.values()
    starts, _, table = operands[5:]
    named = set()
    for b, length in enumerate(past):
        want, *rows = of_sequence(operands, b, tables, more) if new[b] else (y[:0], *(c[:0, 0] for c in caches))
        np.testing.assert_allclose(y[starts[b] : starts[b + 1]], want, 1e-5, 2e-6)
        for cache, before, row in zip(caches, operands[3:5], rows, strict=True):
            total = length + new[b]
            whole, old = (c[table[b]].reshape(P * R, G, D) for c in (cache, before))
            np.testing.assert_allclose(whole[:total], row if new[b] else old[:total], 1e-5, 2e-6)
            np.testing.assert_array_equal(whole[total:], old[total:])
        named |= {*table[b].tolist()}
    others = [page for page in range(PAGES) if page not in named]
    for cache, before in zip(caches, operands[3:5], strict=True):
        np.testing.assert_array_equal(cache[others], before[others])


def test_rows_and_pages_outside_of_the_cache_are_refused_by_name() -> None:
    operands = batch(rng_of(2), [20, 3], [2, 1])
    node = case(*operands, num_heads=N, kv_num_heads=G, outputs=3)
    proto, feeds = built("PagedAttention", [node], "com.microsoft", "float32")
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    wanted = compiled.run(feeds)
    for past in (P * R - 1, -1, 2**31 - 1):
        with pytest.raises(InputError, match=r"'x0_6': .* sequence 0 .* rows 0 to 47"):
            compiled.run({**feeds, "x0_6": np.int32([past, 3])})
    for number, page in ((0, PAGES), (1, -1), (1, 2**31 - 1)):
        table = feeds["x0_7"].copy()
        table[0, number] = page
        with pytest.raises(InputError, match=rf"'x0_7': {page} is page {number} of sequence 0"):
            compiled.run({**feeds, "x0_7": table})
    for starts in ([0, 2, 1], [1, 2, 3], [-1, 2, 3], [0, 2**31 - 1, -1], [0, 3, 2], [0, 2, 2], [0, 2, 4]):
        with pytest.raises(InputError, match="'x0_5': tokens at which sequences start"):
            compiled.run({**feeds, "x0_5": np.int32(starts)})
    unread = feeds["x0_7"].copy()
    unread[:, 2] = PAGES  # no row is there yet
    for name, result in compiled.run({**feeds, "x0_7": unread}).items():
        np.testing.assert_array_equal(result, wanted[name])


def test_shapes_that_fit_no_pages_are_refused() -> None:
    rng, counts = rng_of(3), {"num_heads": N, "kv_num_heads": G, "outputs": 3}
    whole = batch(rng, [20, 3], [2, 1])
    for number, other in (
        (0, floats(rng, 3, 7)), (3, floats(rng, PAGES, R, G, 8)), (4, floats(rng, PAGES, 8, G, D)),
        (5, np.int32([0, 2])), (6, np.int32([1])), (7, np.int32([0, 1])),
    ):  # fmt: skip
        operands = [*whole[:number], other, *whole[number + 1 :]]
        with pytest.raises(UnsupportedError):
            imported(built("PagedAttention", [case(*operands, **counts)], "com.microsoft", "float32")[0])
    turned = case(*whole, do_rotary=1, **counts)
    with pytest.raises(UnsupportedError, match="do_rotary without"):
        imported(built("PagedAttention", [turned], "com.microsoft", "float32")[0])
