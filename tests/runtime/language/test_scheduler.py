"""Texts of several sequences at once: each the one that is made alone."""

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
    return tvm_ext.compile(model, specialize={"T": (3,), "R": (3,)}, **DIMS)


@pytest.fixture(scope="module")
def wanted(model: Any) -> list[list[int]]:
    """What float64 makes of each prompt."""
    oracle = decoder_of(model, 1, 4, 1, 64)
    return [oracle.greedy(prompt, 12) for prompt in PROMPTS]


@pytest.mark.parametrize("speculate", [0, 3])
def test_each_text_is_the_one_that_is_made_alone(speculate: int, compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled, speculate=speculate, piece=16) as scheduler:
        requests = [scheduler.submit(prompt, max_new=12) for prompt in PROMPTS]
        answers: dict[int, list[int]] = {id(request): [] for request in requests}
        for request, token in scheduler:
            answers[id(request)].append(token)
    assert [request.tokens for request in requests] == [answers[id(request)] for request in requests] == wanted
    assert {request.finished for request in requests} == {"length"}


@pytest.mark.parametrize("speculate", [0, 3])
def test_draws_are_those_of_the_seed(speculate: int, compiled: Any) -> None:
    drawn: dict[str, Any] = {"max_new": 10, "temperature": 0.7, "top_k": 9}

    def texts(prompts: Any) -> list[list[int]]:
        with Scheduler(compiled, speculate=speculate) as scheduler:
            requests = [scheduler.submit(prompt, seed=seed, **drawn) for seed, prompt in prompts]
            assert len(list(scheduler)) == 10 * len(requests)
        return [request.tokens for request in requests]

    prompts = list(enumerate(PROMPTS))
    alone = [texts([asked])[0] for asked in prompts]
    assert texts(prompts) == alone and len({*map(tuple, alone)}) == len(PROMPTS)


def test_a_newcomer_has_its_first_token_while_others_go_on(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler:
        others = [scheduler.submit(PROMPTS[number], max_new=12) for number in (0, 1)]
        scheduler.step()
        newcomer = scheduler.submit(PROMPTS[5], max_new=3)  # 70 tokens, of which a step takes 38
        before = [len(other.tokens) for other in others]
        scheduler.step()
        assert not newcomer.tokens
        scheduler.step()
        assert newcomer.tokens == wanted[5][:1] and [len(other.tokens) for other in others] == [n + 2 for n in before]


def test_a_common_beginning_is_computed_once(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler:
        first, second = (scheduler.submit(PROMPTS[5], max_new=12) for _ in "ab")  # 70 tokens: two pages, and a part
        tokens = [request.tokens for request in (first, second) if list(request)]
        assert tokens == [wanted[5]] * 2 and (first.shared, second.shared) == (0, 64)
        again = scheduler.submit([*PROMPTS[5], *wanted[5]], max_new=1)  # 82 tokens, of which 2 pages are known
        other = scheduler.submit([9, *PROMPTS[5]], max_new=1)
        list(scheduler)
        assert (again.shared, other.shared) == (64, 0)
        whole = scheduler.submit([50] * 64, max_new=1)  # the last token is computed: its logits are needed
        list(whole)
        assert whole.shared == 32


def test_more_texts_than_pages_wait(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler:  # 7 pages: two texts of 3 pages
        requests = [scheduler.submit([number, *PROMPTS[5]], max_new=20) for number in range(3)]
        scheduler.step()
        assert sum(bool(request.rows) for request in requests) <= 2
        again = scheduler.submit(PROMPTS[0], max_new=12)
        list(scheduler)
        assert again.tokens == wanted[0] and {len(request.tokens) for request in requests} == {20}


def test_texts_end(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler:
        stopped = scheduler.submit(PROMPTS[0], max_new=12, stop=[wanted[0][4]])
        full = scheduler.submit([50] * 90, max_new=100)
        none = scheduler.submit([1], max_new=0)
        list(scheduler)
        assert stopped.tokens == wanted[0][: wanted[0].index(wanted[0][4]) + 1]
        assert (len(full.tokens), none.tokens) == (7, [])
        assert (stopped.finished, full.finished, none.finished) == ("stop", "length", "length")
        assert scheduler.step() == [] and not scheduler.requests


def test_a_text_that_is_left_does_not_disturb_others(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler:
        left, cancelled, waits, stays = (scheduler.submit(PROMPTS[n], max_new=12) for n in (3, 2, 4, 0))
        tokens = iter(left)
        assert next(tokens) == wanted[3][0]
        tokens.close()
        cancelled.cancel()
        waits.cancel()
        assert stays.tokens == [] and list(stays) == wanted[0]
        assert [r.finished for r in (left, cancelled, waits)] == ["cancelled"] * 3 and left.tokens == wanted[3][:1]
        assert list(stays) == wanted[0]
        stays.cancel()
        assert stays.finished == "length"


def test_what_does_not_fit_is_refused_and_disturbs_nobody(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler:
        request = scheduler.submit(PROMPTS[0], max_new=12)
        scheduler.step()
        for prompt in ([], [1] * 97, [80], [-1], "hello", [[1]], [1.0]):
            with pytest.raises(InputError):
                scheduler.submit(prompt)  # type: ignore[arg-type]
        for option in ({"max_new": -1}, {"temperature": float("nan")}, {"stop": 5}, {"seed": 1.5}, {"top_k": "a"}):
            with pytest.raises(OptionError):
                scheduler.submit([1], **option)  # type: ignore[arg-type]
        assert list(request) == wanted[0]
    for call in (scheduler.step, lambda: scheduler.submit([1])):
        with pytest.raises(RunError):
            call()


def test_a_step_that_stops_loses_no_text(
    compiled: Any, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scheduler(compiled) as scheduler:
        requests = [scheduler.submit(prompt, max_new=12) for prompt in PROMPTS[:5]]
        for _ in range(4):
            scheduler.step()
        with monkeypatch.context() as within:
            within.setattr(scheduler._session, "step", lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                scheduler.step()
        list(scheduler)
        assert [request.tokens for request in requests] == wanted[:5]


@pytest.mark.parametrize(("wrong", "temperature"), [(np.nan, 0.0), (np.inf, 1.0)])
def test_logits_that_are_not_finite_end_their_text_only(
    wrong: float, temperature: float, compiled: Any, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scheduler(compiled) as scheduler:
        first = scheduler.submit(PROMPTS[0], max_new=12)
        broken = scheduler.submit(PROMPTS[4], max_new=12, temperature=temperature)
        other, step = scheduler.submit(PROMPTS[1], max_new=12), scheduler._session.step

        def with_wrong(feeds: Any) -> Any:
            results = step(feeds)
            results["logits"][1] = wrong
            return results

        with monkeypatch.context() as within:
            within.setattr(scheduler._session, "step", with_wrong)
            assert [request for request, _ in scheduler.step()] == [first, other]  # nothing of theirs is lost
        assert broken.finished == "error" and not broken.tokens
        with pytest.raises(RunError) as raised:
            list(broken)
        assert raised.value is broken.error
        assert [list(first), list(other)] == [wanted[0], wanted[1]]


def test_a_program_of_more_tokens_than_a_sequence_has_is_not_padded_for(model: Any, wanted: list[list[int]]) -> None:
    """Padding is one sequence, which has room for as many tokens as others."""
    short = llama(**SIZES, capacity=32, exact=True, sequences=3)
    dims = {**DIMS, "dims": {"T": (1, 48), "R": (1, 6)}}
    with Scheduler(tvm_ext.compile(short, specialize={"T": (48,), "R": (3,)}, **dims)) as scheduler:
        requests = [scheduler.submit(prompt, max_new=12) for prompt in PROMPTS[:2]]
        assert len(list(scheduler)) == 24
    assert [request.tokens for request in requests] == wanted[:2]


def test_the_last_token_of_another_threads_step_is_not_lost(compiled: Any) -> None:
    """It may come, and end the text, at any moment of an iteration."""
    with Scheduler(compiled) as scheduler:
        request = scheduler.submit([1], max_new=1)

        class Tokens(list[int]):
            def __len__(self) -> int:
                count = super().__len__()
                if not request.finished:
                    self.append(7)
                    request.finished = "length"
                return count

        scheduler._waiting.clear()
        request.tokens = Tokens()
        assert list(request) == [7]


def test_a_text_of_another_scheduler_is_not_cancelled(compiled: Any, wanted: list[list[int]]) -> None:
    with Scheduler(compiled) as scheduler, Scheduler(compiled) as other:
        request = scheduler.submit(PROMPTS[0], max_new=12)
        for wrong in (request, "request"):
            with pytest.raises(OptionError):
                other.cancel(wrong)  # type: ignore[arg-type]
        assert list(request) == wanted[0]


def test_models_and_options_that_do_not_fit_are_refused(compiled: Any) -> None:
    alone = tvm_ext.compile(llama(**SIZES, capacity=32), dims={"S": (1, 4)}, state="auto", threads=1, cache=False)
    for call in (
        lambda: Scheduler(alone), lambda: tvm_ext.generate(compiled, [1]), lambda: tvm_ext.PromptCache(compiled),
        lambda: Scheduler(compiled, speculate=-1), lambda: Scheduler(compiled, piece=0.5),  # type: ignore[arg-type]
        lambda: llama(**SIZES, sequences=-1), lambda: llama(**SIZES, sequences=2, every=True),
        lambda: llama(**SIZES, pages=9), lambda: llama(**SIZES, sequences=2, capacity=96, pages=3),
    ):  # fmt: skip
        with pytest.raises(OptionError):
            call()
