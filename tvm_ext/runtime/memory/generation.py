"""Text of a compiled language model, token by token: a session's state is its cache."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, OptionError

if TYPE_CHECKING:
    from ..model import CompiledModel
    from .state_session import StateSession

_TOKENS, _LENGTHS, _TOTAL, _LOGITS = "input_ids", "seqlens_k", "total_sequence_length", "logits"


def generate(
    compiled: CompiledModel, tokens: Sequence[int], *, max_new: int = 128, top_k: int = 0, temperature: float = 0.0,
    seed: int | None = None, stop: Sequence[int] = (),
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

    Returns:
        An iterator, with a session of its own.

    Raises:
        OptionError: the model has another interface or no states, or an option does not fit.
        InputError: no prompt, no whole numbers, tokens that are not of the vocabulary, or more than the cache holds.
    """
    check_draws(max_new=max_new, top_k=top_k, temperature=temperature, seed=seed)
    steps, capacity, vocabulary = _sizes(compiled)
    prompt = _prompt(tokens, capacity, vocabulary)
    rng = np.random.default_rng(seed)
    ends = _ends(stop)
    count = min(max_new, capacity - len(prompt) + 1)
    return _tokens(compiled.session(), prompt, steps, count, ends, lambda row: _picked(row, top_k, temperature, rng))


def check_draws(*, max_new: int, top_k: int, temperature: float, seed: int | None) -> None:
    """See that options of :func:`generate` fit, before there is a model.

    Raises:
        OptionError: names what does not.
    """
    for name, value in (("max_new", max_new), ("top_k", top_k), ("seed", 0 if seed is None else seed)):
        if not _is_whole(value) or value < 0:
            raise OptionError(f"{name}={value!r}: a whole number of 0 or more is needed")
    number = isinstance(temperature, numbers.Real) and not isinstance(temperature, bool)
    if not number or not 0 <= temperature < float("inf"):
        raise OptionError(f"temperature={temperature!r}: a number of 0 or more is needed")


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _ends(stop: Sequence[int]) -> frozenset[int]:
    if isinstance(stop, str | bytes) or not hasattr(stop, "__iter__") or not all(map(_is_whole, ends := tuple(stop))):
        raise OptionError(f"stop={stop!r}: a sequence of tokens is needed")
    return frozenset(ends)


def _prompt(tokens: Sequence[int], capacity: int, vocabulary: int) -> np.ndarray:
    """The tokens as int64."""
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


def _tokens(
    session: StateSession, prompt: np.ndarray, steps: int, count: int, ends: frozenset[int], pick: Any
) -> Iterator[int]:
    done, new = 0, prompt
    with session:
        for _ in range(count):
            while len(new):
                piece, new = new[:steps], new[steps:]
                done += len(piece)
                feeds = {_TOKENS: piece[None], _LENGTHS: np.array([done - 1], np.int32),
                         _TOTAL: np.array(done, np.int32)}  # fmt: skip
                logits = session.step(feeds)[_LOGITS]
            token = pick(logits[0, -1])
            yield token
            if token in ends:
                return
            new = np.array([token], np.int64)


def _picked(logits: np.ndarray, top_k: int, temperature: float, rng: np.random.Generator) -> int:
    """The token that follows."""
    if temperature == 0 or top_k == 1:
        return int(logits.argmax())
    among = _largest(logits, top_k) if 0 < top_k < len(logits) else np.arange(len(logits))
    scores = logits[among].astype(np.float64)
    with np.errstate(over="ignore"):  # -inf at temperatures near 0, where the likeliest alone is left
        weights = np.exp((scores - scores.max()) / temperature)
    return int(rng.choice(among, p=weights / weights.sum()))


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest, ascending."""
    return np.sort(np.argpartition(logits, -count)[-count:])


def _sizes(compiled: CompiledModel) -> tuple[int, int, int]:
    """(most new tokens of a call, rows of the cache, tokens of the vocabulary).

    Raises:
        OptionError: the model is no language model with states.
    """
    metadata, name = compiled.metadata, compiled.metadata.model["name"]
    inputs, outputs = ({spec.name: spec for spec in side} for side in (metadata.inputs, metadata.outputs))
    free = set(inputs) - {taken for _, taken in metadata.state}
    fix = "give a model of zoo.gguf, compiled with state='auto'"
    if free != {_TOKENS, _LENGTHS, _TOTAL} or _LOGITS not in outputs or not metadata.state:
        raise OptionError(f"{name}: its inputs beside states are {', '.join(sorted(free)) or 'none'}", fix=fix)
    most = inputs[_TOKENS].shape[-1]
    bounds = {symbol.name: (symbol.least, symbol.most) for symbol in metadata.symbols}
    least, steps = (most, most) if isinstance(most, int) else bounds[str(most)]
    if least > 1:
        raise OptionError(f"{name}: a call takes {least} tokens, no fewer", fix="dims={'S': (1, 512)}")
    caches = [inputs[taken].shape for _, taken in metadata.state]
    capacity, vocabulary = min(shape[2] for shape in caches), outputs[_LOGITS].shape[-1]
    assert isinstance(capacity, int) and isinstance(vocabulary, int)
    return steps, capacity, vocabulary
