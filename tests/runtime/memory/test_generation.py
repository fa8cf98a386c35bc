"""Tokens that a compiled language model continues with, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.oracles.language import decoder_of
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.frontend.zoo import llama
from tvm_ext.runtime.memory.generation import _picked


@pytest.fixture(scope="module")
def model() -> Any:
    return llama(layers=1, hidden=64, heads=4, kv_heads=1, vocabulary=80, capacity=24, seed=4)


@pytest.fixture(scope="module")
def compiled(model: Any) -> Any:
    return tvm_ext.compile(model, dims={"S": (1, 4)}, specialize={"S": (1,)}, state="auto", threads=1, cache=False)


def test_greedy_is_that_of_float64(model: Any, compiled: Any) -> None:
    prompt = [3, 71, 20, 20, 5, 64, 1]  # two pieces
    wanted = decoder_of(model, 1, 4, 1, 64).greedy(prompt, 12)
    assert list(tvm_ext.generate(compiled, prompt, max_new=12)) == wanted
    assert (
        list(tvm_ext.generate(compiled, prompt, max_new=12, stop=[wanted[4]])) == wanted[: wanted.index(wanted[4]) + 1]
    )


def test_the_cache_ends_it(compiled: Any) -> None:
    assert len(list(tvm_ext.generate(compiled, [1] * 20, max_new=100))) == 5
    assert len(list(tvm_ext.generate(compiled, [1] * 24, max_new=100))) == 1
    for prompt in ([], [1] * 25, [80], [-1]):
        with pytest.raises(InputError):
            list(tvm_ext.generate(compiled, prompt))


def test_tokens_come_one_by_one_and_runs_do_not_meet(compiled: Any) -> None:
    first, second = (tvm_ext.generate(compiled, [7, 8, 9], max_new=6, top_k=5, temperature=1.5, seed=1) for _ in "ab")
    pairs = list(zip(first, second, strict=True))
    assert len(pairs) == 6 and all(a == b for a, b in pairs)
    others = {tuple(tvm_ext.generate(compiled, [7, 8, 9], max_new=6, temperature=1.5, seed=s)) for s in range(4)}
    assert len(others) > 1


def test_draws_have_the_shares_of_their_weights() -> None:
    rng, logits = np.random.default_rng(0), np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    drawn = np.bincount([_picked(logits, 3, 1.0, rng) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, [0, 2 / 9, 3 / 9, 4 / 9], atol=0.03)
    assert {_picked(logits, 0, 1e-3, rng) for _ in range(50)} == {3}


def test_other_models_and_options_are_refused(compiled: Any) -> None:
    other = tvm_ext.compile(tvm_ext.zoo.mlp(), threads=1)
    with pytest.raises(OptionError):
        tvm_ext.generate(other, [1])
    with pytest.raises(OptionError):
        tvm_ext.generate(compiled, [1], temperature=-1.0)
