"""GroupQueryAttention and RotaryEmbedding against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import tvm_ext
from tests.frontend.graphs import imported
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import InputError, UnsupportedError

from .cases import Known, agree, built, case, floats, rng_of, typed

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


def cached(rng: np.random.Generator, lengths: Any, steps: int, sizes: tuple[int, ...], total: int = 0) -> list[Any]:
    """Packed operands, past with room for what comes, lengths less one, and the longest of them.

    Args:
        sizes: heads, heads of keys, size, rows of the cache.
        total: that is said instead.
    """
    heads, groups, size, rows = sizes
    packed = floats(rng, len(lengths), steps, (heads + 2 * groups) * size)
    past = [floats(rng, len(lengths), groups, rows, size) for _ in range(2)]
    return [packed, None, None, *past, np.int32(lengths) - 1, np.array(total or max(lengths), "int32")]


@pytest.mark.parametrize(
    ("lengths", "steps", "sizes", "more"),
    [
        ([31], 1, (3, 1, 64, 31), {}),
        ([1], 1, (1, 1, 64, 31), {}),
        ([5, 67, 1], 1, (9, 3, 80, 67), {"rotary_interleaved": 1}),
        ([7, 3], 7, (9, 3, 64, 37), {}),
        ([37], 5, (4, 4, 16, 37), {"softcap": 0.7}),
        ([150, 200], 1, (6, 2, 32, 200), {"local_window_size": 70, "scale": 0.3}),
        ([150], 20, (6, 2, 32, 200), {"local_window_size": 9, "smooth_softmax": 1}),
    ],
)
def test_a_cache_with_room(lengths: list[int], steps: int, sizes: tuple[int, ...], more: dict[str, Any]) -> None:
    rng = rng_of(4, steps, *lengths)
    operands = [*cached(rng, lengths, steps, sizes), *(floats(rng, sizes[3], sizes[2] // 2) for _ in range(2))]
    node = case(*operands, num_heads=sizes[0], kv_num_heads=sizes[1], do_rotary=1, outputs=3, **more)
    proto, feeds = built("GroupQueryAttention", [node], "com.microsoft")
    wanted = onnxruntime_outputs(proto, feeds)
    results = tvm_ext.compile(typed(proto, wanted), cache=False, threads=2).run(feeds)
    for (name, result), want in zip(results.items(), wanted.values(), strict=True):
        assert result.shape == want.shape, name
        for b, length in enumerate(lengths):  # onnxruntime leaves rows behind a sequence as they come
            part = (b, slice(min(length, steps))) if result.ndim == 3 else (b, slice(None), slice(length))
            np.testing.assert_allclose(result[part], want[part], 1e-5, 2e-6, err_msg=name)


def test_rows_outside_of_a_cache_are_refused_by_name() -> None:
    rng, sizes = rng_of(5), (2, 1, 16, 12)
    node = case(*cached(rng, [9, 12], 2, sizes), num_heads=2, kv_num_heads=1, outputs=3)
    proto, feeds = built("GroupQueryAttention", [node], "com.microsoft", "float32")
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    for last in (12, 0, -5, 2**31 - 1):
        with pytest.raises(InputError, match=r"'x0_5': rows .* of sequence 1 .* rows 0 to 11"):
            compiled.run({**feeds, "x0_5": np.int32([8, last])})
    compiled.run(feeds)


def test_a_position_without_cosines_is_refused() -> None:
    rng = rng_of(7)
    operands = [*cached(rng, [9], 1, (2, 1, 16, 12)), *(floats(rng, 9, 8) for _ in range(2))]
    node = case(*operands, num_heads=2, kv_num_heads=1, do_rotary=1, outputs=3)
    proto, feeds = built("GroupQueryAttention", [node], "com.microsoft", "float32")
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    compiled.run(feeds)
    with pytest.raises(InputError, match=r"'x0_5': rows 9 to 9 of sequence 0 .* rows 0 to 8"):
        compiled.run({**feeds, "x0_5": np.int32([9]), "x0_6": np.array(10, "int32")})


@pytest.mark.parametrize("total", [3, 9])
def test_positions_are_refused_where_onnxruntime_refuses_them(total: int) -> None:
    rng, sizes = rng_of(8, total), (2, 1, 16, 12)
    tables = [floats(rng, 10, 8) for _ in range(2)]
    operands = [*cached(rng, [total], 3, sizes), *tables, np.int64([[7, 8, 9]])]
    node = case(*operands, num_heads=2, kv_num_heads=1, do_rotary=1, outputs=3)
    proto, feeds = built("GroupQueryAttention", [node], "com.microsoft", "float32")
    compiled, reference = tvm_ext.compile(proto, cache=False, threads=1), InferenceSession(proto.SerializeToString())
    refused = 0
    for places in ([7, 8, 9], [8, 9, 10], [8, 0, 0], [0, 100, 0], [0, -1, 0], [-1, 0, 0], [2**32 + 3, 0, 0]):
        own = {**feeds, "x0_9": np.int64([places])}
        try:
            wanted = reference.run(None, own)
        except InvalidArgument:
            refused += 1
            with pytest.raises(InputError, match=r"'x0_9': .* cosines of 0 to 9"):
                compiled.run(own)
        else:
            for output, want in zip(compiled.run(own).values(), wanted, strict=True):
                used = np.s_[:, :, :total] if want.ndim == 4 else np.s_[:]  # rows behind those are not the same
                np.testing.assert_allclose(output[used], want[used], 1e-5, 2e-6)
    assert refused == (4 if total == 3 else 5)


def test_a_bias_or_another_shape_of_a_past_is_refused() -> None:
    rng, sizes = rng_of(6), (2, 1, 16, 12)
    operands = cached(rng, [9], 1, sizes)
    biased = case(*operands, None, None, None, floats(rng, 1, 2, 1, 9), num_heads=2, kv_num_heads=1, outputs=3)
    counts = {"num_heads": 2, "kv_num_heads": 1, "outputs": 3}
    other = case(*operands[:4], floats(rng, 1, 2, 12, 16), *operands[5:], **counts)
    shorter = case(*operands[:4], floats(rng, 1, 1, 11, 16), *operands[5:], **counts)
    wide = case(*operands, floats(rng, 12, 9), floats(rng, 12, 9), do_rotary=1, **counts)
    for node, why in (
        (biased, "attention_bias"), (other, "past_value has shape"), (shorter, "unequal"), (wide, "more cosines"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match=why):
            imported(built("GroupQueryAttention", [node], "com.microsoft", "float32")[0])


@pytest.mark.parametrize("tables", [(), (True,), (False, True)])
@pytest.mark.parametrize("past", [True, False])
def test_a_rotation_without_both_tables_is_refused(past: bool, tables: tuple[bool, ...]) -> None:
    rng = rng_of(9)
    operands = cached(rng, [9], 1, (2, 1, 16, 12)) if past else prompt(rng)
    counts = {"num_heads": 2, "kv_num_heads": 1} if past else {"num_heads": N, "kv_num_heads": G}
    own = [floats(rng, 16, D // 2) if there else None for there in tables]
    node = case(*operands, *own, do_rotary=1, outputs=3, **counts)
    with pytest.raises(UnsupportedError, match="do_rotary without"):
        imported(built("GroupQueryAttention", [node], "com.microsoft", "float32")[0])
