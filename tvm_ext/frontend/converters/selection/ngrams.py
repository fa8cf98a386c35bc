"""TfIdfVectorizer over numbers: how often each n-gram of a pool stands in a row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ...checks.refusal import Refusal
from ..base import Attributes, constant, converts, emit, kernel, static_shape, text

#: N-grams times places of the result: a matrix of so many numbers is made.
_MOST_PLACES = 1 << 26


@converts("TfIdfVectorizer")
def tfidf(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TfIdfVectorizer(x) -> counts (TF), weights of what is there (IDF), or their product (TFIDF).

    An n-gram is n elements with `skip` others between neighbours, for every skip up to `max_skip_count`.
    """
    if "pool_strings" in attributes:
        raise Refusal("a pool of strings")
    shape = static_shape(inputs[0], "the input of TfIdfVectorizer")
    grams = _grams(attributes)
    low, high = int(attributes["min_gram_length"]), int(attributes["max_gram_length"])
    at = [int(i) for i in attributes["ngram_indexes"]]
    kept = [(gram, index) for gram, index in zip(grams, at, strict=True) if low <= len(gram) <= high]
    size = max(at, default=0) + 1
    if min(at, default=0) < 0 or len(kept) * size > _MOST_PLACES:
        raise ValueError(f"ngram_indexes from {min(at)} to {max(at)}: 0 to {_MOST_PLACES // max(len(kept), 1)} work")
    if not kept or 0 in shape:
        return relax.op.zeros((*shape[:-1], size), "float32")
    rows = emit(relax.op.reshape(emit(relax.op.astype(inputs[0], "int64")), (-1, shape[-1])))
    counts = emit(_counts(rows, [gram for gram, _ in kept], int(attributes["max_skip_count"])))
    place = np.zeros((len(kept), size), np.float32)
    place[range(len(kept)), [index for _, index in kept]] = 1
    placed = emit(relax.op.matmul(counts, constant(place)))
    scale = np.zeros(size, np.float32)
    scale[at] = np.asarray(attributes.get("weights", 1), np.float32)
    mode = text(attributes, "mode", "TF")
    if mode == "IDF":
        placed = relax.op.astype(relax.op.greater(placed, relax.const(0.0, "float32")), "float32")
    result = placed if mode == "TF" else placed * constant(scale)
    return relax.op.reshape(result, (*shape[:-1], size))


def _grams(attributes: Attributes) -> list[tuple[int, ...]]:
    """The pool's n-grams: those of one element first, then of two, ...; `ngram_counts` says where each kind begins."""
    pool = [int(v) for v in attributes["pool_int64s"]]
    starts = [int(s) for s in attributes["ngram_counts"]]
    if [0, *starts, len(pool)] != sorted([0, *starts, len(pool)]):
        raise ValueError(f"ngram_counts {starts}: places in the pool of {len(pool)}, ascending, are needed")
    grams = []
    for n, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams += [tuple(pool[i : i + n]) for i in range(start, stop, n)]
    return grams


def _counts(rows: Any, grams: Sequence[tuple[int, ...]], skips: int) -> Any:
    """How often each n-gram stands in each row: (rows, grams), float32."""
    longest = max(map(len, grams))
    table = constant(np.array([[*gram, *[0] * (longest - len(gram))] for gram in grams], np.int64))
    lengths = constant(np.array([len(gram) for gram in grams], np.int32))

    def compute(data: te.Tensor, pool: te.Tensor, size: te.Tensor) -> te.Tensor:
        width = int(data.shape[1])
        most = max(min(skips, width), 0)  # a longer step leaves the row
        p, s = te.reduce_axis((0, width), name="p"), te.reduce_axis((0, most + 1), name="s")

        def element(r: Any, g: Any) -> Any:
            step = s + 1
            read = [data(r, tirx.min(p + j * step, width - 1)) for j in range(longest)]
            same = [tirx.any(j >= size(g), element == pool(g, j)) for j, element in enumerate(read)]
            fits = tirx.all(p + (size(g) - 1) * step < width, tirx.any(s == 0, size(g) > 1))
            return te.sum(tirx.all(fits, *same).astype("float32"), axis=[p, s])

        return te.compute([data.shape[0], len(grams)], element, name="out")

    return kernel(compute, rows, table, lengths, name="count_grams")
