"""Normalizations of com.microsoft against onnxruntime; groups, which its CPU lacks, against float64."""

from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.oracles.reference import onnxruntime_outputs

from .cases import Known, agree, built, case, floats, rng_of, typed

B, S, H = 2, 5, 33


def test_layer_norms_of_sums() -> None:
    rng = rng_of(1)
    x, parts = [floats(rng, B, S, H) for _ in range(6)], [Known(floats(rng, H)) for _ in range(3)]
    agree(
        "SkipLayerNormalization",
        case(x[0], x[1], *parts),
        case(x[2], floats(rng, 1, S, H), parts[0], epsilon=1e-3),
        case(x[3], floats(rng, S, H), parts[0], parts[1], outputs=(True, False, False, True)),
        case(x[4], x[5], parts[0], None, parts[2], outputs=(True, False, False, True)),
    )


def test_rms_norms_of_sums() -> None:
    rng = rng_of(2)
    weight, bias = Known(floats(rng, H)), Known(floats(rng, H))
    agree(
        "SkipSimplifiedLayerNormalization",
        case(floats(rng, B, S, H), floats(rng, B, S, H), weight, bias, outputs=(True, False, False, True)),
        case(floats(rng, S, H), floats(rng, S, H), weight, epsilon=1e-3),
    )


def test_rms_norms_of_the_standard_domain() -> None:
    rng = rng_of(3)
    agree(
        "SimplifiedLayerNormalization",
        case(floats(rng, B, S, H), Known(floats(rng, H)), epsilon=1e-6, stash_type=1),
        case(floats(rng, B, S, H), Known(floats(rng, S, H)), axis=1, outputs=2),
        domain="",
    )


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_a_gated_norm(activation: str) -> None:
    rng = rng_of(4)
    agree("GatedRMSNorm", case(floats(rng, B, S, 24), floats(rng, 8), floats(rng, B, S, 24), activation=activation))


def words(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.int32(rng.integers(0, rows, (B, S)))


def test_embeddings() -> None:
    rng = rng_of(5)
    tables = [Known(floats(rng, rows, H)) for rows in (40, 8, 2)]
    parts, mask = [Known(floats(rng, H)), Known(floats(rng, H))], np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    alone = [tables[0], tables[1], None]
    agree(
        "EmbedLayerNormalization",
        case(words(rng, 40), words(rng, 2), *tables, *parts, mask, outputs=3),
        case(words(rng, 40), None, *alone, *parts, None, np.int32([[4, 3, 2, 1, 0]]), epsilon=1e-3, outputs=2),
        case(words(rng, 40), words(rng, 2), *tables, *parts, None, words(rng, 8), outputs=2),
        varied=False,
    )


def test_quantized_embeddings() -> None:
    rng = rng_of(6)
    tables = [Known(np.uint8(rng.integers(0, 256, shape))) for shape in ((40, H), (8, H), (2, H), (H,), (H,))]
    scales = [Known(np.float32(s)) for s in (0.02, 0.01, 0.03, 0.015, 0.02)]
    zeros = [Known(np.uint8(z)) for z in (128, 110, 120, 60, 130)]
    mask = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    agree("QEmbedLayerNormalization", case(words(rng, 40), words(rng, 2), *tables, mask, *scales, *zeros, outputs=2))


def group_norm(x: np.ndarray, weight: np.ndarray, shift: np.ndarray, groups: int, last: int, silu: int) -> np.ndarray:
    x = np.float64(x if last else x.transpose(0, 2, 3, 1))
    n, h, w, c = x.shape
    apart = x.reshape(n, h * w, groups, c // groups)
    mean, variance = (f(apart, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    y = ((apart - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * weight + shift
    y = y / (1 + np.exp(-y)) if silu else y
    return np.float32(y if last else y.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("silu", [0, 1])
def test_groups(last: int, silu: int) -> None:
    rng = rng_of(7, last, silu)
    shape = (2, 5, 3, 12) if last else (2, 12, 5, 3)
    x, skip, weight, shift, bias = (floats(rng, *s) for s in (shape, shape, (12,), (12,), (12,)))
    more: dict[str, Any] = {"groups": 4, "channels_last": last, "activation": silu}
    agree("GroupNorm", case(x, weight, shift, **more), wanted=[group_norm(x, weight, shift, 4, last, silu)])
    total = x + skip + (bias if last else bias.reshape(1, -1, 1, 1))
    agree("SkipGroupNorm", case(x, weight, shift, skip, bias, outputs=2, **more),
          wanted=[group_norm(total, weight, shift, 4, last, silu), total])  # fmt: skip
    short = floats(rng, 2, 12)
    total = x + short.reshape((2, 1, 1, 12) if last else (2, 12, 1, 1))
    agree("SkipGroupNorm", case(x, weight, shift, short, **more),
          wanted=[group_norm(total, weight, shift, 4, last, silu)])  # fmt: skip


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_sums_of_narrow_floats_are_made_in_float32(operator: str) -> None:
    """onnxruntime's CPU has these kernels of float16 too, and they sum in float32."""
    rng = rng_of(8)
    parts = [np.float16(floats(rng, *shape)) for shape in ((B, S, 700), (B, S, 700), (700,))]
    agree(operator, case(*parts), rtol=2**-10, atol=2**-10)


def test_statistics_of_narrow_floats_are_of_float32() -> None:
    rng = rng_of(31)
    x, skip, weight = (floats(rng, *shape).astype(np.float16) for shape in ((2, 5, 8), (2, 5, 8), (8,)))
    for operator in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        statistics = (True, operator == "SkipLayerNormalization", True, True)
        names = [str(np.dtype(d)) for d in ("float16", "float32", "float32", "float16")]
        proto, feeds = built(operator, [case(x, skip, weight, outputs=statistics)], "com.microsoft")
        wanted = onnxruntime_outputs(proto, feeds)
        outputs = tvm_ext.compile(typed(proto, wanted), cache=False, threads=1).run(feeds)
        for name, want in wanted.items():
            assert want.dtype.name == names[int(name[-1])]
            np.testing.assert_allclose(outputs[name], want, 2e-3, 1e-3)
            assert outputs[name].dtype == want.dtype
            assert want.dtype == np.float16 or (outputs[name] != outputs[name].astype(np.float16)).any()


def test_words_without_segments_are_in_the_first_one() -> None:
    rng = rng_of(32)
    tables = [Known(floats(rng, rows, 8)) for rows in (20, 6, 2)]
    affine = [Known(floats(rng, 8)) for _ in range(2)]
    agree("EmbedLayerNormalization", case(np.int32(rng.integers(0, 20, (2, 6))), None, *tables, *affine, outputs=2),
          varied=False, atol=1e-5)  # fmt: skip
