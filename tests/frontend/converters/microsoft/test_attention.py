"""Attention, QAttention and MultiHeadAttention against onnxruntime: masks of every form, pasts, biases, odd sizes."""

import math
from typing import Any

import numpy as np
import pytest

from tests.frontend.graphs import imported
from tests.oracles.reference import onnxruntime_outputs
from tests.passes.stages import stage
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.passes.lowering.lower_rest import LowerRest

from .cases import Case, Known, agree, built, case, floats, rng_of, typed

B, S, N, D = 2, 5, 3, 7
H = N * D


def thin(rng: np.random.Generator, depth: int, *shape: int) -> np.ndarray:
    """A weight whose products have a deviation of 1."""
    return floats(rng, depth, *shape) / np.float32(np.sqrt(depth))


def masks(rng: np.random.Generator, keys: int) -> dict[str, np.ndarray]:
    """Form -> a mask of each."""
    rows = np.int32(rng.integers(0, 2, (B, keys)))
    rows[:, 0] = 1
    whole = np.int32(rng.integers(0, 2, (B, S, keys)))
    whole[..., 0] = 1
    return {"ends": np.int32([keys, keys - 2]), "both": np.int32([keys, keys - 1, 2, 0]), "rows": rows, "whole": whole}


@pytest.mark.parametrize("causal", [0, 1])
def test_masks(causal: int) -> None:
    rng = rng_of(1, causal)
    weight, bias = Known(thin(rng, 11, 3 * H)), Known(floats(rng, 3 * H))
    more = {"num_heads": N, "unidirectional": causal}
    choices = [None, *masks(rng, S).values()]
    cases = [case(floats(rng, B, S, 11), weight, bias, mask, **more) for mask in choices]
    agree("Attention", *cases, case(floats(rng, B, S, 11), weight, bias, choices[3], mask_filter_value=-3.5, **more))


def test_sizes_biases_and_a_scale() -> None:
    rng = rng_of(2)
    widths = {"num_heads": N, "qkv_hidden_sizes": [H, H, 2 * N]}
    agree(
        "Attention",
        case(floats(rng, B, S, 11), Known(thin(rng, 11, 2 * H + 2 * N)), Known(floats(rng, 2 * H + 2 * N)), **widths),
        case(floats(rng, B, S, 11), Known(thin(rng, 11, 3 * H)), Known(floats(rng, 3 * H)), None, None,
             floats(rng, 1, N, S, S), num_heads=N, scale=0.4),
        case(floats(rng, B, S, 11), thin(rng, 11, 3 * H), floats(rng, 3 * H), None, None,
             floats(rng, B, 1, S, S), num_heads=N),
    )  # fmt: skip


@pytest.mark.parametrize("causal", [0, 1])
def test_a_past(causal: int) -> None:
    rng, past = rng_of(3, causal), 4
    for mask in (None, masks(rng, S + past)["rows"]):
        agree("Attention", case(
            floats(rng, B, S, 11), Known(thin(rng, 11, 3 * H)), Known(floats(rng, 3 * H)), mask,
            floats(rng, 2, B, N, past, D), num_heads=N, unidirectional=causal, outputs=2,
        ))  # fmt: skip


def operands(rng: np.random.Generator, keys: int, width: int = H) -> list[np.ndarray]:
    return [floats(rng, B, S, H), floats(rng, B, keys, H), floats(rng, B, keys, width)]


def test_heads_of_other_keys() -> None:
    rng, keys = rng_of(4), 9
    more = {"num_heads": N}
    rows = masks(rng, keys)["rows"]
    agree(
        "MultiHeadAttention",
        case(*operands(rng, keys), **more),
        case(*operands(rng, keys, 2 * N), Known(floats(rng, 2 * H + 2 * N)), rows, **more),
        case(*operands(rng, keys), None, np.int32([9, 4]), floats(rng, 1, N, S, keys), **more),
        case(*operands(rng, keys), None, masks(rng, keys)["whole"], floats(rng, B, 1, S, keys), **more),
        case(*operands(rng, S), Known(floats(rng, 3 * H)), unidirectional=1, scale=0.3, outputs=3, **more),
        case(floats(rng, B, S, H), floats(rng, B, N, keys, D), floats(rng, B, N, keys, D), **more),
    )


@pytest.mark.parametrize("keys", [3, 9])
def test_a_causal_query_sees_as_many_keys_as_come_before_it(keys: int) -> None:
    """The first query sees the first key, and those of the past; in onnxruntime the last one sees all there are."""
    rng, past, more = rng_of(12, keys), 2, {"num_heads": N, "unidirectional": 1}
    before = [floats(rng, B, N, past, D) for _ in range(2)]
    rows = Known(masks(rng, keys)["rows"])
    agree(
        "MultiHeadAttention",
        case(*operands(rng, keys), **more),
        case(floats(rng, B, S, H), *(floats(rng, B, N, keys, D) for _ in range(2)), None, rows, **more),
        case(*operands(rng, keys), None, None, None, *before, outputs=3, **more),
    )


def test_packed_operands() -> None:
    rng, keys = rng_of(7), 9
    packed, query, pairs = floats(rng, B, S, N, 3, D), floats(rng, B, S, H), floats(rng, B, keys, N, 2, D)
    apart = case(*(packed[..., i, :].reshape(B, S, H) for i in range(3)), num_heads=N)
    cross = case(query, *(pairs[..., i, :].reshape(B, keys, H) for i in range(2)), num_heads=N)
    wanted = onnxruntime_outputs(*built("MultiHeadAttention", [apart, cross], "com.microsoft")).values()
    agree("MultiHeadAttention", case(packed, num_heads=N), case(query, pairs, num_heads=N), wanted=list(wanted))


def test_heads_with_a_past() -> None:
    rng, past = rng_of(5), 3
    before: list[Any] = [floats(rng, B, N, past, D), floats(rng, B, N, past, D)]
    rows = masks(rng, S + past)["rows"]
    agree(
        "MultiHeadAttention",
        case(*operands(rng, S), None, rows, None, *before, num_heads=N, outputs=3),
        case(*operands(rng, S), Known(floats(rng, 3 * H)), None, None, *before, num_heads=N, unidirectional=1,
             outputs=3),
        case(*operands(rng, S), None, masks(rng, S)["rows"], floats(rng, 1, N, S, S), num_heads=N,
             outputs=(True, False, False, True)),
        stated="float32",
    )  # fmt: skip


@pytest.mark.parametrize("columns", [False, True])
def test_integers(columns: bool) -> None:
    rng = rng_of(6, columns)
    scale = np.float32(rng.uniform(0.005, 0.02, 3 * H if columns else ()))
    weight = Known(np.int8(rng.integers(-100, 100, (11, 3 * H))))
    bias, parts = Known(floats(rng, 3 * H)), [Known(np.float32(0.02)), Known(scale)]
    zeros = [Known(np.uint8(120)), Known(np.zeros(scale.shape, np.int8))]
    x = [np.uint8(rng.integers(0, 256, (B, S, 11))) for _ in range(3)]
    agree(
        "QAttention",
        case(x[0], weight, bias, *parts, None, *zeros, num_heads=N),
        case(x[1], weight, bias, *parts, masks(rng, S)["ends"], *zeros, num_heads=N, unidirectional=1),
        case(x[2], weight, bias, *parts, masks(rng, S + 2)["rows"], *zeros, floats(rng, 2, B, N, 2, D), num_heads=N,
             outputs=2),
    )  # fmt: skip


def kernels(operator: str, node: Case) -> list[str]:
    """The recipe of each kernel of a model of one node."""
    proto, feeds = built(operator, [node], "com.microsoft")
    return stage(typed(proto, onnxruntime_outputs(proto, feeds)), LowerRest).recipes


def test_the_recipes_are_those_of_attention_written_out() -> None:
    rng = rng_of(8)
    weight, bias = Known(thin(rng, 11, 3 * H)), Known(floats(rng, 3 * H))
    node = case(floats(rng, B, S, 11), weight, bias, num_heads=N, unidirectional=1)
    assert kernels("Attention", node) == ["dense", "dense", "dense", "attention"]
    assert kernels("MultiHeadAttention", case(*operands(rng, 9), num_heads=N)) == ["attention"]


def bucket_of(distance: int, buckets: int, far: int, both: bool) -> int:
    """T5's bucket of a key that lies `distance` before its query."""
    first = 0
    if both:
        buckets //= 2
        first = buckets if distance < 0 else 0
        distance = abs(distance)
    distance, exact = max(distance, 0), buckets // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(far / exact) * (buckets - exact)
    return first + min(exact + int(grown + 1e-6), buckets - 1)


@pytest.mark.parametrize("both", [0, 1])
def test_a_bias_by_distance(both: int) -> None:
    """onnxruntime's CPU has no kernel of it; its fusion writes the table transposed, and states the plain shape."""
    rng, queries, keys, buckets, far = rng_of(10, both), 40, 50, 12, 30
    table = floats(rng, buckets, N)
    wanted = np.stack(
        [[table[bucket_of(i - j, buckets, far, bool(both))] for j in range(keys)] for i in range(queries)]
    )
    lengths = [Known(np.array([n], np.int64)) for n in (queries, keys)]
    node = case(
        Known(np.ascontiguousarray(table.T).reshape(buckets, N)), *lengths, max_distance=far, is_bidirectional=both
    )
    agree("RelativePositionBias", node, wanted=[wanted.transpose(2, 0, 1)[None]])


def test_a_gated_bias() -> None:
    rng = rng_of(11)
    query, bias, positions = floats(rng, B, S, H), floats(rng, H), floats(rng, 1, N, S, S)
    weight, shift, eco = floats(rng, D, 8), floats(rng, 8), floats(rng, 1, N, 1, 1)
    apart = np.float64(query + bias).reshape(B, S, N, D).transpose(0, 2, 1, 3)
    gates = 1 / (1 + np.exp(-(apart @ weight + shift).reshape(B, N, S, 2, 4).sum(-1)))
    u, r = gates[..., :1], gates[..., 1:]
    wanted = np.float32((u * (r * eco - 1) + 2) * positions)
    agree("GatedRelativePositionBias", case(query, bias, positions, Known(weight), Known(shift), eco, num_heads=N),
          wanted=[wanted], atol=1e-5)  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "text"),
    [({}, "'num_heads' is missing"), ({"num_heads": 0}, "'num_heads' is 0"), ({"num_heads": 4}, "which 4 heads do not"),
     ({"num_heads": N, "do_rotary": 1}, "do_rotary is 1"),
     ({"num_heads": N, "qkv_hidden_sizes": [H, H, 3]}, "of a weight")],
)  # fmt: skip
def test_what_is_refused(attributes: dict[str, Any], text: str) -> None:
    rng = rng_of(12)
    node = case(floats(rng, B, S, 11), Known(thin(rng, 11, 3 * H)), None, **attributes)
    with pytest.raises(UnsupportedError, match=text):
        imported(built("Attention", [node], "com.microsoft", "float32")[0])


def test_a_mask_of_another_form_says_which_work() -> None:
    rng = rng_of(13)
    node = case(floats(rng, B, S, 11), Known(thin(rng, 11, 3 * H)), None, np.ones((B, 1, 9, 9), np.int32), num_heads=N)
    with pytest.raises(UnsupportedError, match=r"a mask of shape \(2, 1, 9, 9\).* it can be \(2,\), \(4,\), \(2, 5\)"):
        imported(built("Attention", [node], "com.microsoft", "float32")[0])
