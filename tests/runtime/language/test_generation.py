"""Tokens that a compiled language model continues with, against float64."""

import concurrent.futures
import contextlib
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.oracles.language import decoder_of
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.frontend.zoo import llama
from tvm_ext.runtime.language.generation import PromptCache
from tvm_ext.runtime.language.sampling import Sampling


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
    drawn = np.bincount([Sampling(top_k=3, temperature=1.0).pick(logits, rng) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, [0, 2 / 9, 3 / 9, 4 / 9], atol=0.03)
    assert {Sampling(temperature=1e-3).pick(logits, rng) for _ in range(50)} == {3}


def test_other_models_and_options_are_refused(compiled: Any) -> None:
    other = tvm_ext.compile(tvm_ext.zoo.mlp(), threads=1)
    with pytest.raises(OptionError):
        tvm_ext.generate(other, [1])
    with pytest.raises(OptionError):
        tvm_ext.generate(compiled, [1], temperature=-1.0)


@pytest.mark.parametrize(
    "prompt", ["hello", b"hello", ["1"], [[1, 2], [3]], [[1, 2]], 5, [1.0], [True], [2**63], [2**64], [None], iter([1])]
)
def test_prompts_of_no_whole_numbers_are_refused(prompt: Any, compiled: Any) -> None:
    with pytest.raises(InputError):
        tvm_ext.generate(compiled, prompt)


@pytest.mark.parametrize("prompt", [(1, 2), np.array([1, 2], np.uint8), [np.int32(1), np.int64(2)], range(1, 3)])
def test_prompts_of_any_whole_numbers_are_taken(prompt: Any, compiled: Any) -> None:
    tokens = tvm_ext.generate(compiled, prompt, max_new=np.int64(2), stop=np.array([100]))
    assert list(tokens) == list(tvm_ext.generate(compiled, [1, 2], max_new=2))


@pytest.mark.parametrize(
    "wrong",
    [{"max_new": 2.5}, {"max_new": "2"}, {"max_new": True}, {"max_new": -1}, {"top_k": 1.5}, {"top_k": None},
     {"seed": -1}, {"seed": 1.5}, {"seed": "a"}, {"stop": 5}, {"stop": "ab"}, {"stop": [1.5]}, {"stop": None},
     {"temperature": "1"}, {"temperature": None}, {"temperature": float("nan")}, {"temperature": float("inf")}],
)  # fmt: skip
def test_options_of_other_types_are_refused(wrong: dict[str, Any], compiled: Any) -> None:
    with pytest.raises(OptionError):
        tvm_ext.generate(compiled, [1], **wrong)


def test_a_model_that_takes_no_single_token_is_refused(model: Any) -> None:
    several = tvm_ext.compile(model, dims={"S": (2, 4)}, state="auto", threads=1, cache=False)
    with pytest.raises(OptionError):
        tvm_ext.generate(several, [1, 2, 3])


@pytest.mark.parametrize("temperature", [1e-310, 5e-324, np.float32(1e-40)])
def test_temperatures_near_0_take_the_likeliest(temperature: float) -> None:
    logits = np.array([3, -2e38, 7, 6.999999], np.float32)
    assert {Sampling(temperature=temperature).pick(logits, np.random.default_rng(seed)) for seed in range(5)} == {2}


@pytest.fixture(scope="module")
def checked() -> Any:
    """A model with logits of all tokens."""
    model = llama(layers=1, hidden=64, heads=4, kv_heads=1, vocabulary=80, capacity=64, seed=4, every=True, exact=True)
    return tvm_ext.compile(model, dims={"S": (1, 8)}, specialize={"S": (1,)}, state="auto", threads=1, cache=False)


@pytest.mark.parametrize("drawn", [{}, {"temperature": 0.3, "seed": 3, "top_k": 20}])
@pytest.mark.parametrize("prompt", [[5, 6, 7] * 4, [1, 2, 3], [9] * 60])
def test_speculation_changes_no_token(prompt: list[int], drawn: Any, checked: Any) -> None:
    plain, ahead = ([*tvm_ext.generate(checked, prompt, max_new=30, speculate=k, **drawn)] for k in (0, 4))
    assert ahead == plain and len(plain) == min(30, 65 - len(prompt))
    stop = [plain[len(plain) // 2]]
    plain, ahead = ([*tvm_ext.generate(checked, prompt, max_new=30, speculate=k, stop=stop, **drawn)] for k in (0, 4))
    assert ahead == plain and plain[-1] == stop[0]


def test_a_draft_of_another_model_changes_no_token(
    checked: Any, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the same weights and a third of the capacity is right as long as the text fits; another one hardly."""
    prompt, own, other = [5, 71, 9], PromptCache(checked), PromptCache(compiled)
    wanted = list(tvm_ext.generate(checked, prompt, max_new=40))
    calls, step = list[int](), PromptCache.step
    monkeypatch.setattr(
        PromptCache, "step", lambda self, new: (self is own and calls.append(len(new))) or step(self, new)
    )
    how: dict[str, Any] = {"max_new": 40, "speculate": 3, "prompt_cache": own, "draft": other}
    assert list(tvm_ext.generate(checked, prompt, **how)) == wanted
    early = 24 - len(prompt)  # tokens that the draft knows
    assert len(calls) <= 40 - early + early // 4 + 3 and len(other.tokens) == 24
    drawn = {**how, "temperature": 0.5, "seed": 2}
    plain = list(tvm_ext.generate(checked, prompt, max_new=40, temperature=0.5, seed=2))
    assert list(tvm_ext.generate(checked, prompt, **drawn)) == plain
    monkeypatch.setattr(other, "likeliest", lambda text, count: [text[0]] * count)
    assert list(tvm_ext.generate(checked, prompt, **how)) == wanted
    for wrong in ({"speculate": 0}, {"draft": own}):
        with pytest.raises(OptionError):
            tvm_ext.generate(checked, prompt, **{**how, **wrong})
    other.sizes = replace(other.sizes, vocabulary=79)
    with pytest.raises(OptionError):
        tvm_ext.generate(checked, prompt, **how)


def test_speculation_makes_fewer_calls(checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, step = [], PromptCache.step
    monkeypatch.setattr(PromptCache, "step", lambda self, new: calls.append(len(new)) or step(self, new))
    tokens = list(tvm_ext.generate(checked, [9] * 3, max_new=40, speculate=4))
    assert len({*tokens[-8:]}) < 8 and len(calls) < 20 and max(calls[1:]) == 5


def test_a_cache_goes_on_with_a_common_beginning(checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, step = [], PromptCache.step
    cache = PromptCache(checked)
    monkeypatch.setattr(PromptCache, "step", lambda self, new: calls.append(len(new)) or step(self, new))
    first = list(tvm_ext.generate(checked, [1, 2, 3, 4], max_new=5, prompt_cache=cache))
    assert sum(calls) == 8 and cache.tokens == [1, 2, 3, 4, *first[:4]]
    for prompt, read in (([1, 2, 3, 4, *first, 7], 3), ([1, 2, 5], 2), ([1, 2, 5], 2), ([6], 2)):
        calls.clear()
        wanted = list(tvm_ext.generate(checked, prompt, max_new=2))
        calls.clear()
        assert list(tvm_ext.generate(checked, prompt, max_new=2, prompt_cache=cache)) == wanted
        assert sum(calls) == read
    texts = [tvm_ext.generate(checked, [start], max_new=4, prompt_cache=cache) for start in (11, 12)]
    mixed = list(zip(*texts, strict=True))  # each takes the cache from the other
    assert [list(text) for text in zip(*mixed, strict=True)] == [
        list(tvm_ext.generate(checked, [start], max_new=4)) for start in (11, 12)
    ]
    monkeypatch.setattr(cache._session, "step", lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        list(tvm_ext.generate(checked, [12, 13], prompt_cache=cache))
    assert cache.tokens == []
    cache.close()


def test_threads_may_use_one_cache(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, texts = tvm_ext.PromptCache(compiled), ([3, 5, 7, 9], [11, 13, 15])
    wanted = [list(tvm_ext.generate(compiled, text, max_new=6)) for text in texts]
    begin, step, turn, gate = (
        tvm_ext.PromptCache.begin,
        tvm_ext.PromptCache.step,
        threading.Barrier(2),
        threading.Lock(),
    )

    def both_begin(self: Any, text: Any) -> None:
        begin(self, text)
        with contextlib.suppress(threading.BrokenBarrierError):
            turn.wait(0.1)  # only without the lock both threads come here

    def one_steps(self: Any, new: Any) -> Any:
        with gate:
            return step(self, new)

    monkeypatch.setattr(tvm_ext.PromptCache, "begin", both_begin)
    monkeypatch.setattr(tvm_ext.PromptCache, "step", one_steps)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda text: list(tvm_ext.generate(compiled, text, max_new=6, prompt_cache=cache)), texts)
        assert list(answers) == wanted


def test_speculation_and_caches_that_do_not_fit_are_refused(compiled: Any, checked: Any) -> None:
    for wrong in ({"speculate": 2}, {"prompt_cache": PromptCache(checked)}, {"prompt_cache": 5}, {"draft": compiled}):
        with pytest.raises(OptionError):
            tvm_ext.generate(compiled, [1], **wrong)
    for call in (tvm_ext.PromptCache, lambda model: tvm_ext.generate(model, [1])):
        with pytest.raises(OptionError, match="no compiled model"):
            call("model.gguf")
    for number in (8, -1, 1.5, True):
        with pytest.raises(OptionError):
            tvm_ext.generate(checked, [1], speculate=number)  # type: ignore[arg-type]
