"""GroupQueryAttention and RotaryEmbedding against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.graphs import imported
from tvm_ext.core.errors import UnsupportedError

from .cases import Known, agree, built, case, floats, rng_of

B, S, N, G, D = 2, 5, 6, 2, 16


def prompt(rng: np.random.Generator, lengths: Any = (S - 1, S - 1)) -> list[Any]:
    """Query, key, value, no past, lengths of sequences less one, and the longest of them."""
    sizes = (N, G, G)
    return [*(floats(rng, B, S, n * D) for n in sizes), None, None, np.int32(lengths), np.int32(S)]


def tables(rng: np.random.Generator, half: int = D // 2) -> list[np.ndarray]:
    return [floats(rng, 16, half), floats(rng, 16, half)]


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary(interleaved: int) -> None:
    rng = rng_of(1, interleaved)
    places = rng.integers(0, 16, (B, S))
    more = {"interleaved": interleaved}
    partial = {"rotary_embedding_dim": 4, "num_heads": 3}
    agree(
        "RotaryEmbedding",
        case(floats(rng, B, S, 3 * D), places, *tables(rng), **more),
        case(floats(rng, B, 3, S, D), np.int64([7]), *tables(rng), **more),
        case(floats(rng, B, S, 3 * D), places, *tables(rng, 2), **partial, **more),
        case(floats(rng, B, 3, S, D), places, *tables(rng, 2), **partial, **more),
        case(floats(rng, B, S, 3 * D), Known(places), *map(Known, tables(rng)), num_heads=3, **more),
    )


@pytest.mark.parametrize("rank", [2, 3])
def test_rotary_by_rows_of_tokens_is_that_of_onnx(rank: int) -> None:
    rng = rng_of(5)
    rows = [floats(rng, *[B, S, D // 2][3 - rank :]) for _ in range(2)]
    node = case(floats(rng, B, S, 3 * D), None if rank == 2 else np.int64([0]), *rows)
    with pytest.raises(UnsupportedError, match="no positions" if rank == 2 else "cosines of shape"):
        imported(built("RotaryEmbedding", [node], "com.microsoft", "float32")[0])


def test_prompts() -> None:
    rng, more = rng_of(2), {"num_heads": N, "kv_num_heads": G}
    packed = floats(rng, B, S, (N + 2 * G) * D)
    agree(
        "GroupQueryAttention",
        case(*prompt(rng), outputs=3, **more),
        case(packed, None, None, *prompt(rng)[3:], outputs=3, **more),
        case(*prompt(rng), *tables(rng), do_rotary=1, outputs=3, **more),
        case(*prompt(rng), *tables(rng), do_rotary=1, rotary_interleaved=1, outputs=3, **more),
        case(*prompt(rng), *tables(rng), np.tile(np.arange(S), (B, 1)), do_rotary=1, outputs=3, **more),
        case(*prompt(rng), local_window_size=2, scale=0.2, outputs=3, **more),
    )


def test_scores_with_a_cap_a_bias_and_a_sink() -> None:
    rng, more = rng_of(3), {"num_heads": N, "kv_num_heads": G}
    bias = floats(rng, 1, N, S, S)
    agree(
        "GroupQueryAttention",
        case(*prompt(rng), softcap=0.7, outputs=3, **more),
        case(*prompt(rng), None, None, None, bias, softcap=0.7, outputs=3, **more),
        case(*prompt(rng), smooth_softmax=1, outputs=3, **more),
        case(*prompt(rng), None, None, None, None, floats(rng, N), outputs=3, **more),
        case(*prompt(rng), causal=0, outputs=3, **more),
        case(*prompt(rng, (S - 1, 2)), causal=0, outputs=(True, False, False), **more),
    )


def test_a_grown_cache_is_refused() -> None:
    rng = rng_of(4)
    given = prompt(rng)
    given[3] = given[4] = floats(rng, B, G, 3, D)
    node = case(*given, num_heads=N, kv_num_heads=G, outputs=3)
    with pytest.raises(UnsupportedError, match="past_key: only a first prompt works"):
        imported(built("GroupQueryAttention", [node], "com.microsoft", "float32")[0])
