"""Text of a compiled language model, token by token: a session's state is its cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import OptionError, check_whole
from .interface import LENGTHS, LOGITS, TOKENS, TOTAL, OneSequence
from .lookup import draft_of
from .sampling import Sampling, prompt_of

if TYPE_CHECKING:
    from ..model import CompiledModel


class PromptCache:
    """The rows of one sequence, which :func:`generate` goes on with where the next prompt begins with the same tokens.

    Threads may use one: each call of the model finds the rows that its text needs.

    Args:
        compiled: a model as :func:`generate` takes it.

    Attributes:
        tokens: whose rows are in the cache.
        lock: held from a look at the rows to the end of the calls that need them.

    Raises:
        OptionError: the model has another interface or no states.
    """

    def __init__(self, compiled: CompiledModel) -> None:
        self.model, self.sizes = compiled, OneSequence.of(compiled)
        self.tokens: list[int] = []
        self.lock = threading.Lock()
        self._session = compiled.session()

    def begin(self, prompt: Sequence[int]) -> None:
        """Keep the rows of the common beginning with a prompt, but for its last token, whose logits are needed."""
        most = min(len(self.tokens), len(prompt) - 1)
        if self.tokens[:most] != prompt[:most]:
            most = next(i for i in range(most) if self.tokens[i] != prompt[i])
        self.keep(most)

    def keep(self, count: int) -> None:
        """Forget the rows behind the first `count`."""
        del self.tokens[count:]

    def read(self, text: Sequence[int]) -> list[int]:
        """Compute rows of a text as long as more tokens of it are left than a call takes; the tokens that are left."""
        self.begin(text)
        new = [*text[len(self.tokens) :]]
        while len(new) > self.sizes.steps:
            self.step(new[: self.sizes.steps])
            new = new[self.sizes.steps :]
        return new

    def likeliest(self, text: Sequence[int], count: int) -> list[int]:
        """`count` tokens that greedily follow a text; fewer where the cache is full, none where the text is longer."""
        tokens: list[int] = []
        with self.lock:
            new = self.read(text) if len(text) <= self.sizes.capacity else []
            while len(tokens) < count and len(text) + len(tokens) <= self.sizes.capacity:
                new = [int(self.step(new)[-1].argmax())]
                tokens += new
        return tokens

    def step(self, new: Sequence[int]) -> np.ndarray:
        """Compute the rows of tokens behind those that there are.

        Args:
            new: the tokens.

        Returns:
            Logits: (1 or tokens, vocabulary).

        Raises:
            RunError: the program stopped; no row is left then.
        """
        count, known = len(self.tokens) + len(new), self.tokens
        self.tokens = []
        try:
            logits = self._session.step(_fed(new, count))[LOGITS]
        except BaseException:
            self._session.reset()
            raise
        self.tokens = [*known, *map(int, new)]
        return np.asarray(logits[0])

    def close(self) -> None:
        """Give the memory of the cache back."""
        self.tokens = []
        self._session.close()


def generate(
    compiled: CompiledModel, tokens: Sequence[int], *, max_new: int = 128, top_k: int = 0, temperature: float = 0.0,
    seed: int | None = None, stop: Sequence[int] = (), speculate: int = 0, prompt_cache: PromptCache | None = None,
    draft: PromptCache | None = None,
) -> Iterator[int]:  # fmt: skip
    """The tokens that a language model continues with, each as soon as it is known.

    Args:
        compiled: a model with the interface of `zoo.gguf`, compiled with `state="auto"` and a symbolic number of new
            tokens: `compile(model, dims={"S": (1, 512)}, specialize={"S": (1,)}, state="auto")`.
        tokens: the prompt, whole numbers in one dimension; it is taken in pieces of the largest S.
        max_new: how many tokens are made at most; there are fewer where the cache is full.
        top_k: how many of the likeliest are drawn from; 0 draws from all. It counts with a temperature only.
        temperature: that logits are divided by before one is drawn; 0 takes the likeliest, of equal ones the first.
        seed: of what is drawn; None draws anew each time.
        stop: tokens behind which nothing is made; one of them is the last.
        speculate: how many tokens are looked up, where the last ones stood before, and checked in one call with the
            next one: a call then makes up to 1 + `speculate` tokens, the same ones as without, but for ties within
            rounding. It needs a model of `every=True`, and S of 1 + `speculate` at least.
        prompt_cache: rows of an earlier text; those of the common beginning are not computed again. None has a cache
            of its own.
        draft: rows of a smaller model of the same tokens, whose likeliest ones are checked with `speculate` instead of
            those that are looked up.

    Returns:
        An iterator.

    Raises:
        OptionError: the model has another interface or no states, or an option does not fit.
        InputError: no prompt, no whole numbers, tokens that are not of the vocabulary, or more than the cache holds.
    """
    sampling = Sampling(
        max_new=max_new, top_k=top_k, temperature=temperature, seed=seed, stop=stop,  # type: ignore[arg-type]
    )  # fmt: skip
    sizes = OneSequence.of(compiled)
    check_whole("speculate", speculate)
    if speculate and not (sizes.every and speculate < sizes.steps):
        wrong = f"speculate={speculate}, where a call takes {sizes.steps} tokens"
        wrong += "" if sizes.every else ", and has logits of the last one only"
        raise OptionError(wrong, fix="zoo.gguf(..., every=True), and dims={'S': (1, 256)}")
    for name, cache in (("prompt_cache", prompt_cache), ("draft", draft)):
        if cache is not None and not isinstance(cache, PromptCache):
            raise OptionError(f"{name}={cache!r:.100} is no PromptCache", fix=f"{name}=tvm_ext.PromptCache(compiled)")
    if prompt_cache is not None and prompt_cache.model is not compiled:
        raise OptionError("prompt_cache is that of another model", fix="PromptCache(compiled)")
    known = 0 if draft is None else draft.sizes.vocabulary
    if draft is not None and (not speculate or known != sizes.vocabulary or draft is prompt_cache):
        wrong = f"draft of {known} tokens, where there are {sizes.vocabulary}, with speculate={speculate}"
        raise OptionError(wrong, fix="a cache of another model of the same tokens, and speculate=4")
    prompt = [int(token) for token in prompt_of(tokens, sizes.capacity, sizes.vocabulary)]
    following = draft_of if draft is None else draft.likeliest
    return _tokens(prompt_cache or PromptCache(compiled), prompt, sampling, speculate, following, prompt_cache is None)


def _tokens(
    cache: PromptCache, prompt: list[int], sampling: Sampling, speculate: int,
    following: Callable[[Sequence[int], int], list[int]], own: bool,
) -> Iterator[int]:  # fmt: skip
    sizes, text, rng = cache.sizes, [*prompt], sampling.rng()
    left = min(sampling.max_new, sizes.capacity - len(prompt) + 1)
    try:
        while left > 0:
            with cache.lock:
                new, draft = cache.read(text), list[int]()  # another text may have used it since
                if speculate and len(new) + speculate <= sizes.steps:
                    draft = following(text, min(speculate, left - 1))
                logits = cache.step([*new, *draft])
                accepted = sampling.accepted(logits[len(logits) - len(draft) - 1 :], draft, rng)
                text += accepted
                cache.keep(len(text) - 1)
            left = 0 if accepted[-1] in sampling.stop else left - len(accepted)
            yield from accepted
    finally:
        if own:
            cache.close()


def _fed(new: Sequence[int], count: int) -> Mapping[str, np.ndarray]:
    """What a step takes for tokens after which there are `count`."""
    return {TOKENS: np.array([new], np.int64), LENGTHS: np.array([count - 1], np.int32),
            TOTAL: np.array(count, np.int32)}  # fmt: skip
