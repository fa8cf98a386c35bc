"""Texts of several sequences at once: each the one that is made alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.oracles.language import decoder_of
from tvm_ext.core.errors import InputError, OptionError, RunError
from tvm_ext.frontend.zoo import llama
from tvm_ext.runtime.language.scheduler import Scheduler

SIZES: dict[str, Any] = {"layers": 1, "hidden": 64, "heads": 4, "kv_heads": 1, "vocabulary": 80, "seed": 4}
DIMS: dict[str, Any] = {"dims": {"T": (1, 40), "R": (1, 6)}, "state": "auto", "threads": 1, "cache": False}
PROMPTS = ([3, 71, 20, 20, 5, 64, 1], [7], [1, 2, 3, 4] * 9, [9, 9], [30, 31, 32], [50] * 70)


@pytest.fixture(scope="module")
def model() -> Any:
    return llama(**SIZES, capacity=96, exact=True, sequences=3, pages=8)


@pytest.fixture(scope="module")
def compiled(model: Any) -> Any:
    return tvm_ext.compile(model, specialize={"T": (1, 3), "R": (1, 3)}, **DIMS)


@pytest.fixture(scope="module")
def wanted(model: Any) -> list[list[int]]:
    """What float64 makes of each prompt."""
    oracle = decoder_of(model, 1, 4, 1, 64)
    return [oracle.greedy(prompt, 12) for prompt in PROMPTS]


@pytest.mark.parametrize("speculate", [0, 3])
def test_each_text_is_the_one_that_is_made_alone(speculate: int, compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled, speculate=speculate, piece=16) as scheduler:
        requests = [scheduler.submit(prompt, max_new=12) for prompt in PROMPTS]
        made: dict[int, list[int]] = {id(request): [] for request in requests}
        for request, token in scheduler:
            made[id(request)].append(token)
    assert [request.tokens for request in requests] == [made[id(request)] for request in requests] == wanted
    assert {request.finished for request in requests} == {"length"}
