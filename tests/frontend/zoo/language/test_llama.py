"""Language models of seeded weights: against float64 and onnxruntime, in prompts, pieces and single tokens."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.oracles.language import decoder_of
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import ModelError, OptionError
from tvm_ext.frontend.zoo import llama
from tvm_ext.frontend.zoo.language.graph import LlamaSizes, language_model
from tvm_ext.frontend.zoo.language.weights import in_blocks

SIZES: dict[str, Any] = {"layers": 2, "heads": 4, "kv_heads": 2, "hidden": 64}


def fed(tokens: Any, start: int = 0) -> dict[str, np.ndarray]:
    """What a step takes for tokens behind the first `start`."""
    count = start + len(tokens)
    return {"input_ids": np.int64([tokens]), "seqlens_k": np.int32([count - 1]),
            "total_sequence_length": np.array(count, np.int32)}  # fmt: skip


def empty_caches(model: Any) -> dict[str, np.ndarray]:
    """Caches of nothing."""
    past = [(i.name, i.type.tensor_type) for i in model.graph.input if i.name.startswith("past")]
    kinds = {name: helper.tensor_dtype_to_np_dtype(kind.elem_type) for name, kind in past}
    return {name: np.zeros([d.dim_value for d in kind.shape.dim], kinds[name]) for name, kind in past}


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return [int(t) for t in np.random.default_rng(5).integers(0, 96, 14)]


@pytest.mark.parametrize("bits", [4, 8, 32])
def test_onnxruntime_runs_the_same_file(bits: int, tokens: list[int]) -> None:
    model = llama(**SIZES, vocabulary=96, capacity=32, bits=bits, every=True, exact=True)
    wanted = decoder_of(model, 2, 4, 2, 64).logits(tokens)
    got = onnxruntime_outputs(model, {**fed(tokens), **empty_caches(model)})["logits"]
    np.testing.assert_allclose(got[0], wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("exact", [True, False])
def test_a_prompt_then_a_piece_then_tokens(exact: bool, tokens: list[int]) -> None:
    model = llama(**SIZES, vocabulary=96, capacity=32, exact=exact)
    wanted = decoder_of(model, 2, 4, 2, 64).logits(tokens)
    compiled = tvm_ext.compile(model, dims={"S": (1, 8)}, specialize={"S": (1,)}, state="auto", threads=2, cache=False)
    recipes = {kernel["recipe"] for kernel in compiled.report["kernels"]}
    assert {"matmul_blocks", "dense_blocks", "take_blocks"} <= recipes
    weights = sum(a.nbytes for a in map(np.asarray, decoder_of(model, 2, 4, 2, 64).weights.values())) / 8
    assert compiled.report["weight_bytes"] < 1.5 * weights  # a byte a number, at most, with scales and tables
    with compiled.session() as session:
        for start, stop in ((0, 7), (7, 10), *((i, i + 1) for i in range(10, 14))):
            got = session.step(fed(tokens[start:stop], start))["logits"][0, 0]
            np.testing.assert_allclose(got, wanted[stop - 1], rtol=0, atol=1e-5 if exact else 2e-3)


def test_caches_of_float16_are_onnxruntimes(tokens: list[int]) -> None:
    model = llama(**SIZES, vocabulary=96, capacity=32, exact=True, cache="float16")
    wanted = decoder_of(model, 2, 4, 2, 64).logits(tokens)
    compiled = tvm_ext.compile(model, dims={"S": (1, 8)}, specialize={"S": (1,)}, state="auto", threads=2, cache=False)
    assert [len(program.updates) for program in compiled.metadata.programs] == [4, 4]
    other = onnxruntime_outputs(model, {**fed(tokens), **empty_caches(model)})
    np.testing.assert_allclose(other["logits"][0, 0], wanted[-1], rtol=0, atol=4e-3)
    with compiled.session() as session:
        for start, stop in ((0, 7), (7, 10), *((i, i + 1) for i in range(10, 14))):
            got = session.step(fed(tokens[start:stop], start))["logits"][0, 0]
            np.testing.assert_allclose(got, wanted[stop - 1], rtol=0, atol=4e-3)
        for name, rows in session.state.items():
            assert rows.dtype == np.float16 and rows[:, :, :14].any()
            np.testing.assert_allclose(rows, other[name.replace("past_key_values", "present")], rtol=0, atol=4e-3)


def test_seeds() -> None:
    one, other, again = (llama(**SIZES, seed=seed).SerializeToString() for seed in (1, 2, 1))
    assert one == again != other


@pytest.mark.parametrize(
    "wrong",
    [
        {"heads": 3}, {"kv_heads": 3}, {"bits": 3}, {"layers": 0}, {"capacity": 0}, {"intermediate": -1},
        {"block": 0}, {"block": 48}, {"block": 128}, {"block": 0, "bits": 32}, {"block": 32.0},
        {"cache": "int8"},
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        llama(**{**SIZES, **wrong})


def test_a_table_of_broken_blocks_is_refused() -> None:
    table = in_blocks(np.ones((8, 40), np.float32), 4, 16)
    with pytest.raises(ModelError, match="whole number of blocks"):
        language_model("m", LlamaSizes(1, 40, 2, 1, 8, 4), {"token_embd.weight": table})
