"""How tokens are drawn of logits, and the options that say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError, OptionError, RunError, check_whole, is_number, is_whole
from .options import TEXT


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is drawn of one sequence; each field is one of :data:`.options.TEXT`.

    Attributes:
        stop: tokens behind which nothing is made; one of them is the last.

    Raises:
        OptionError: names what does not fit.
    """

    max_new: int = TEXT["max_new"].default
    top_k: int = TEXT["top_k"].default
    temperature: float = TEXT["temperature"].default
    seed: int | None = TEXT["seed"].default
    stop: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for name in ("max_new", "top_k", "seed"):
            if not (name == "seed" and self.seed is None):
                check_whole(name, getattr(self, name))
        if not is_number(self.temperature) or self.temperature < 0:
            raise OptionError(f"temperature={self.temperature!r}: a number of 0 or more is needed")
        object.__setattr__(self, "stop", _ends(self.stop))

    def rng(self) -> np.random.Generator:
        """Random numbers of a sequence."""
        return np.random.default_rng(self.seed)

    def pick(self, logits: np.ndarray, rng: np.random.Generator) -> int:
        """The token that follows, of logits (vocabulary,).

        Raises:
            RunError: one is NaN or inf, or all are -inf.
        """
        if not np.isfinite(logits.max()):
            raise RunError(
                f"the largest logit is {logits.max()}",
                fix="look for NaN or infinity in the weights: tvm_ext.verify(layers=True)",
            )
        if self.temperature == 0 or self.top_k == 1:
            return int(logits.argmax())
        among = _largest(logits, self.top_k) if 0 < self.top_k < len(logits) else np.arange(len(logits))
        scores = logits[among].astype(np.float64)
        with np.errstate(over="ignore"):  # -inf at temperatures near 0, where the likeliest alone is left
            weights = np.exp((scores - scores.max()) / self.temperature)
        return int(rng.choice(among, p=weights / weights.sum()))

    def accepted(self, logits: np.ndarray, draft: Sequence[int], rng: np.random.Generator) -> list[int]:
        """The tokens that are drawn one after the other, as without a draft, until one is not the draft's.

        Args:
            logits: (1 + tokens of the draft, vocabulary): behind the last token, and behind each of the draft.
        """
        tokens: list[int] = []
        for row, guess in zip(logits, [*draft, None], strict=True):
            tokens.append(self.pick(row, rng))
            if tokens[-1] != guess or tokens[-1] in self.stop:
                break
        return tokens


def prompt_of(tokens: Sequence[int], capacity: int, vocabulary: int) -> np.ndarray:
    """The tokens as int64.

    Raises:
        InputError: no whole numbers in one dimension; none, or more than `capacity`; or not of the vocabulary.
    """
    try:
        prompt = np.asarray(tokens)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"a prompt is one sequence of whole numbers: {error}") from error
    if prompt.ndim != 1 or (len(prompt) and prompt.dtype.kind not in "iu"):
        kind = f"{prompt.dtype} in {prompt.ndim} dimensions"
        raise InputError(f"a prompt of {kind}: whole numbers in one dimension are needed", fix="tokens of a Dialogue")
    if not 0 < len(prompt) <= capacity:
        raise InputError(f"a prompt of {len(prompt)} tokens; 1 to {capacity} fit into the cache")
    if prompt.min() < 0 or prompt.max() >= vocabulary:
        raise InputError(f"tokens from {prompt.min()} to {prompt.max()}: those below {vocabulary} are known")
    return prompt.astype(np.int64)


def _ends(stop: Any) -> frozenset[int]:
    if isinstance(stop, str | bytes) or not hasattr(stop, "__iter__") or not all(map(is_whole, ends := tuple(stop))):
        raise OptionError(f"stop={stop!r}: a sequence of tokens is needed")
    return frozenset(map(int, ends))


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest, ascending."""
    return np.sort(np.argpartition(logits, -count)[-count:])
